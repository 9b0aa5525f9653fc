//! The ccm is killed between any two writes of a Service's life.

use kube::api::{DeleteParams, PostParams};
use provider_mock::Fixture;
use serde_json::json;
use testenv::objects::ingress;
use testenv::{Process, eventually};

use super::{balancer, has_finalizer, stored_handle};
use crate::proxy::Proxy;
use crate::world::{SOON, World};

/// A Service from its creation to its deletion, or to the change of its type. Another ccm continues
/// where the last one stopped.
struct Life {
    name: String,
    /// Its type is changed, and it is not deleted.
    type_changed: bool,
    was_whole: bool,
}

impl Life {
    async fn goes_on(&mut self, world: &World) {
        if !self.was_whole {
            let service = balancer(&self.name).build();
            let made = world
                .services()
                .create(&PostParams::default(), &service)
                .await;
            assert!(
                matches!(&made, Ok(_) | Err(kube::Error::Api(_))),
                "{made:?}"
            );
            world
                .service_becomes(&self.name, "is whole", |service| {
                    has_finalizer(service)
                        && stored_handle(service).is_some()
                        && ingress(service).is_some()
                })
                .await;
            self.was_whole = true;
        }
        if self.type_changed {
            world
                .edit(&self.name, json!({"spec": {"type": "ClusterIP"}}))
                .await;
            world
                .service_becomes(&self.name, "is released", |service| {
                    !has_finalizer(service)
                        && stored_handle(service).is_none()
                        && ingress(service).is_none()
                })
                .await;
            return;
        }
        let deleted = world
            .services()
            .delete(&self.name, &DeleteParams::default())
            .await;
        assert!(
            matches!(&deleted, Ok(_) | Err(kube::Error::Api(_))),
            "{deleted:?}"
        );
        world.service_goes(&self.name).await;
    }
}

/// Kills the ccm at each write in turn, until a Service's life has no further write.
async fn killed_at_each_write(world: &mut World, proxy: &Proxy, ccm: &mut Process, path: &str) {
    let flag = proxy.flag();
    for type_changed in [false, true] {
        for forwarded in [false, true] {
            let mut number = 1;
            loop {
                let name = format!(
                    "s{number}-{}-{}",
                    u8::from(type_changed),
                    u8::from(forwarded)
                );
                let mut life = Life {
                    name: name.clone(),
                    type_changed,
                    was_whole: false,
                };
                proxy.trap(&format!("{path}{name}"), number, forwarded);
                let killed = proxy.trapped_during(life.goes_on(world)).await;
                if killed {
                    world.crash(ccm).await;
                    *ccm = world.ccm(&[&flag]);
                    life.goes_on(world).await;
                }
                let made = format!("of default/{name} with");
                let writes = world.cloud().writes();
                let creates = writes.iter().filter(|line| line.starts_with("create"));
                let creates = creates.filter(|line| line.contains(&made)).count();
                assert_eq!(
                    creates, 1,
                    "makes one load balancer only: {name}: {writes:?}"
                );
                // When the finalizer is gone, the cloud has no load balancer.
                assert!(
                    world.made(&name).is_none(),
                    "leaves none in the cloud: {name}"
                );
                if !killed {
                    // The writes are finalizer, handle, status, and the end of the finalizer. If
                    // the type changes, the API server itself clears the status.
                    assert_eq!(number - 1, 4, "a kill comes at each of the four writes");
                    break;
                }
                number += 1;
            }
        }
    }
}

/// Fault: the ccm process is killed (SIGKILL) right before or right after each write of a Service's
/// life reaches a real API server: finalizer, handle, status, and the removal of the finalizer when
/// the Service is deleted or changes its type | makes one load balancer only; leaves none in the
/// cloud; a kill comes at each of the four writes
#[tokio::test]
async fn fault_service_ccm_process_killed_between_writes() {
    let mut world = World::new(Fixture::default()).await;
    let proxy = Proxy::start(&world.plane).await;
    let mut ccm = world.ccm(&[&proxy.flag()]);
    world.led_by(&ccm).await;
    world.join("node-1").await;
    world.initialised("node-1").await;
    killed_at_each_write(&mut world, &proxy, &mut ccm, "/services/").await;
    assert!(world.cloud().load_balancers().is_empty());
    eventually("it still works", SOON, async || {
        ccm.exit_status()
            .map_or(Ok(()), |status| Err(status.to_string()))
    })
    .await;
    world.later_one_is_served("later").await;
}
