//! Machines without a cloud: a file lists their names, addresses, types and zones, and their Nodes in Kubernetes get these.
//!
//!     echo 'node-1,10.0.0.5,8-cores,rack-a' > machines.csv
//!     cargo run --example minimal -- machines.csv unix:///tmp/machines/provider.sock

use provider_sdk::prelude::*;

struct Machines {
    file: String,
}

#[async_trait]
impl Provider for Machines {
    fn info(&self) -> ProviderInfo {
        ProviderInfo::new("machines", "1.0.0").provider_id_prefix("machines://")
    }

    async fn initialize(&self, _: &Call, _: &InitializeRequest) -> Result<Initialized, Failure> {
        Ok(Initialized::new(format!("file {}", self.file)))
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

#[async_trait]
impl Instances for Machines {
    async fn lookup(&self, _: &Call, node: &Node, _: &InstanceQuery) -> Result<Instance, Failure> {
        let read = tokio::fs::read_to_string(&self.file).await;
        let lines = read.map_err(|e| Failure::unavailable(format!("{}: {e}", self.file)))?;
        // The provider ID identifies the machine if the Node has one.
        let by_name = format!("machines://{}", node.name);
        let known = node.provider_id.as_ref().unwrap_or(&by_name);
        for line in lines.lines() {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            if let [name, address, machine, zone] = fields[..]
                && *known == format!("machines://{name}")
            {
                let found = Instance::present(known).instance_type(machine);
                let address = NodeAddress::internal_ip(address);
                return Ok(found.zone(zone).address(address));
            }
        }
        // A missing line does not prove that a machine is gone: the controller leaves this Node alone.
        Ok(Instance::unmanaged())
    }
}

#[tokio::main]
async fn main() -> Result<(), ServeError> {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.init();
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "machines.csv".into());
    let endpoint = args.next().unwrap_or_else(|| DEFAULT_ENDPOINT.into());
    let server = Server::new(Machines { file }).endpoint(endpoint);
    server.serve_until_signal().await
}
