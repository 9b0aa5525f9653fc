//! Load balancers of a cloud that exists in memory only. docs/provider-guide.md shows excerpts.
//!
//!     cargo run --example load_balancers -- unix:///tmp/balancers/provider.sock

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use provider_sdk::prelude::*;

/// A load balancer in the cloud.
#[derive(Clone, Default)]
struct Made {
    id: String,
    ip: Option<String>,
    owner: String,
    service_uid: String,
    ports: Vec<String>,
    targets: Vec<String>,
}

/// In place of a client of the cloud's API. It keeps the load balancers in memory.
#[derive(Default)]
struct Api {
    made: Mutex<Vec<Made>>,
}

#[expect(clippy::unused_async, reason = "a real client waits for the network")]
impl Api {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Made>) -> T) -> T {
        look(&mut self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Made)) -> Result<(), Failure> {
        self.with(|all| {
            let made = all.iter_mut().find(|made| made.id == id);
            made.map(change)
                .ok_or_else(|| Failure::internal(format!("{id} is gone")))
        })
    }

    async fn by_id(&self, id: &str) -> Result<Option<Made>, Failure> {
        Ok(self.with(|all| all.iter().find(|made| made.id == id).cloned()))
    }

    async fn by_tags(&self, owners: &[String], uid: &str) -> Result<Option<Made>, Failure> {
        let ours = |made: &&Made| owners.contains(&made.owner) && made.service_uid == uid;
        Ok(self.with(|all| all.iter().find(ours).cloned()))
    }

    async fn create(&self, owner: &str, uid: &str) -> Result<Made, Failure> {
        self.with(|all| {
            let free = |ip: &String| all.iter().all(|made| made.ip.as_ref() != Some(ip));
            let ip = (1..=254)
                .map(|last| Ipv4Addr::new(192, 0, 2, last).to_string())
                .find(free);
            let ip = ip.ok_or_else(|| Failure::precondition("192.0.2.0/24 is used up"))?;
            let made = Made {
                id: format!("lb-{ip}"),
                ip: Some(ip),
                owner: owner.into(),
                service_uid: uid.into(),
                ..Made::default()
            };
            all.push(made.clone());
            Ok(made)
        })
    }

    async fn set_ports(&self, id: &str, ports: &[String]) -> Result<(), Failure> {
        self.change(id, |made| made.ports = ports.to_vec())
    }

    async fn set_targets(&self, id: &str, targets: &[String]) -> Result<(), Failure> {
        self.change(id, |made| made.targets = targets.to_vec())
    }

    async fn set_owner(&self, id: &str, owner: &str) -> Result<(), Failure> {
        self.change(id, |made| made.owner = owner.into())
    }

    async fn delete(&self, id: &str) -> Result<(), Failure> {
        self.with(|all| all.retain(|made| made.id != id));
        Ok(())
    }
}

struct MyCloud {
    api: Api,
}

#[async_trait]
impl Provider for MyCloud {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("balancers", "1.0.0")
    }

    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new("the memory of this process"))
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }
}

/// The ports on which the load balancer listens, in your cloud's form.
fn ports(service: &Service) -> Vec<String> {
    let port =
        |port: &ServicePort| format!("{}/{} -> {:?}", port.port, port.protocol, port.node_port);
    service.ports.iter().map(port).collect()
}

fn names(targets: &[Node]) -> Vec<String> {
    targets.iter().map(|node| node.name.clone()).collect()
}

impl MyCloud {
    /// Searches by the handle, else by the mark. A user can edit the handle, so the mark decides who
    /// owns the load balancer (LB-4).
    async fn find(
        &self,
        call: &Call,
        service: &Service,
        handle: Option<&str>,
    ) -> Result<Option<Made>, Failure> {
        if let Some(id) = handle
            && let Some(made) = self.api.by_id(id).await?
        {
            if call.owns(&made.owner) && made.service_uid == service.uid {
                return Ok(Some(made));
            }
            return Err(Failure::conflict(format!("{id} belongs to {}", made.owner)));
        }
        let mut owners = vec![call.cluster().owner_id.clone()];
        owners.extend_from_slice(call.previous_owner_ids());
        self.api.by_tags(&owners, &service.uid).await
    }

    /// Writes only the differences, and nothing if the load balancer is as asked (LB-8).
    async fn bring_about(
        &self,
        call: &Call,
        made: &Made,
        ports: &[String],
        targets: Option<&[Node]>,
    ) -> Result<(), Failure> {
        // Replace the mark of a former owner ID of this cluster.
        if made.owner != call.cluster().owner_id {
            call.before_write().await?; // an error if the caller has gone (CORE-8)
            self.api
                .set_owner(&made.id, &call.cluster().owner_id)
                .await?;
        }
        if made.ports != ports {
            call.before_write().await?;
            self.api.set_ports(&made.id, ports).await?;
        }
        // If the request has no targets, the present ones stay. An empty list means none (LB-10).
        if let Some(targets) = targets.map(names)
            && made.targets != targets
        {
            call.before_write().await?;
            self.api.set_targets(&made.id, &targets).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LoadBalancers for MyCloud {
    async fn get(
        &self,
        call: &Call,
        request: &GetLoadBalancer,
    ) -> LoadBalancerResult<LoadBalancer> {
        let Some(made) = self
            .find(call, &request.service, request.handle.as_deref())
            .await?
        else {
            return Ok(LoadBalancer::absent().into());
        };
        let status = LoadBalancerStatus::ips(made.ip);
        Ok(Answer::from(LoadBalancer::present(
            Ownership::Ours,
            made.id.clone(),
            status,
        ))
        .with_handle(made.id))
    }

    async fn ensure(
        &self,
        call: &Call,
        request: &EnsureLoadBalancer,
    ) -> LoadBalancerResult<Ensured> {
        let service = &request.service;
        let found = self.find(call, service, request.handle.as_deref()).await?;
        let made = if let Some(made) = found {
            made
        } else {
            call.before_write().await?;
            let owner = &call.cluster().owner_id;
            self.api.create(owner, &service.uid).await?
        };
        // The cloud's ID is known now: the answer has it, also in a failure (LB-3).
        self.bring_about(call, &made, &ports(service), request.targets.as_deref())
            .await
            .map_err(|failure| Answer::from(failure).with_handle(&made.id))?;
        let ensured = match &made.ip {
            Some(ip) => Ensured::Ready(LoadBalancerStatus::ips([ip])),
            None => Ensured::Pending(Pending::new("the cloud gives it an address")),
        };
        Ok(Answer::from(ensured).with_handle(&made.id))
    }

    async fn update(
        &self,
        call: &Call,
        request: &UpdateLoadBalancer,
    ) -> LoadBalancerResult<Updated> {
        let Some(made) = self
            .find(call, &request.service, request.handle.as_deref())
            .await?
        else {
            return Err(Failure::not_found("there is no load balancer to update").into()); // LB-11
        };
        self.bring_about(call, &made, &made.ports, Some(&request.targets))
            .await?;
        Ok(Updated::Done.into())
    }

    async fn delete(
        &self,
        call: &Call,
        request: &DeleteLoadBalancer,
    ) -> LoadBalancerResult<Deleted> {
        if let Some(made) = self
            .find(call, &request.service, request.handle.as_deref())
            .await?
        {
            call.before_write().await?;
            self.api.delete(&made.id).await?;
        }
        Ok(Deleted::Done.into()) // nothing is left (LB-12)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, ServeError> {
    if let Some(code) = provider_sdk::probe_command(DEFAULT_ENDPOINT).await {
        return Ok(code);
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let endpoint = std::env::args().nth(1);
    let endpoint = endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.into());
    let cloud = MyCloud {
        api: Api::default(),
    };
    let server = Server::new(cloud).endpoint(endpoint);
    server.serve_until_signal().await?;
    Ok(ExitCode::SUCCESS)
}
