//! kill -9 of the provider at each call about load balancers that Ensure and Delete make: nothing
//! leaks, and nothing of others is touched.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use testenv::objects::ingress;
use testenv::{Vendor, eventually};

use crate::world::{SOON, World};

#[tokio::test]
async fn killed_at_each_call_of_digitalocean_nothing_leaks() {
    killed_at_each_call(Vendor::DigitalOcean).await;
}

#[tokio::test]
async fn killed_at_each_call_of_hetzner_nothing_leaks() {
    killed_at_each_call(Vendor::Hetzner).await;
}

async fn killed_at_each_call(vendor: Vendor) {
    let mut world = World::running(vendor, 1).await;
    world.join(0).await;
    let path = "balancers/of-somebody-else";
    world.cloud.ask("POST", path, &Value::Null).unwrap();
    let others = world.cloud.balancers().unwrap();
    // Whether the cloud has carried out the call that the provider gets no answer to.
    for carried in [true, false] {
        let mut calls = [0, 0];
        for at in 0.. {
            let name = format!("web-{}-{at}", u8::from(carried));
            world.hang(at, carried);
            world.expose(&name, &[]).await;
            let (killed, balancer) = world.killed_until(&name, true).await;
            calls[0] += usize::from(killed);
            world
                .tells("service", &name, &["EnsuredLoadBalancer"])
                .await;
            let mut there = others.clone();
            there.extend(balancer);
            assert_eq!(world.cloud.balancers().unwrap(), there, "{name}");

            world.hang(at, carried);
            let how = DeleteParams::default();
            world.services().delete(&name, &how).await.unwrap();
            let (killed_too, _) = world.killed_until(&name, false).await;
            calls[1] += usize::from(killed_too);
            assert_eq!(world.cloud.balancers().unwrap(), others, "{name}");
            if !killed && !killed_too {
                break;
            }
        }
        assert!(calls.iter().all(|&it| it >= 2), "{calls:?}");
    }
}

impl World {
    /// After `skip` calls about load balancers, the next one hangs until its caller has gone.
    fn hang(&self, skip: usize, carried: bool) {
        self.cloud.ask("DELETE", "plans", &Value::Null).unwrap();
        self.plan(&json!({
            "match": "/load_balancer", "skip": skip, "break": !carried, "delay_ms": 600_000
        }));
    }

    /// Kills the provider at the call that hangs, and starts another one. Waits until the Service
    /// is served, or gone. Returns whether that call came, and the load balancer that serves the
    /// Service.
    async fn killed_until(
        &mut self,
        name: &str,
        served: bool,
    ) -> (bool, Option<testenv::Balancer>) {
        let done = async |world: &Self| {
            let service = world.services().get_opt(name).await.unwrap();
            service.map_or(!served, |it| served && ingress(&it).is_some())
        };
        let killed = eventually("it is done, or a call hangs", SOON, async || {
            let left = self.cloud.ask("GET", "plans", &Value::Null).unwrap();
            match left.as_u64() {
                Some(0) => Ok(true),
                _ if done(self).await => Ok(false),
                _ => Err(format!("{:?}", self.events(name).await)),
            }
        })
        .await;
        if killed {
            self.cloud.kill_provider();
            self.cloud.start_provider(&[]).unwrap();
            eventually("it is done", SOON, async || {
                if done(self).await {
                    Ok(())
                } else {
                    Err(format!("{:?}", self.events(name).await))
                }
            })
            .await;
        }
        let balancer = if served {
            Some(self.served(name).await)
        } else {
            None
        };
        (killed, balancer)
    }
}
