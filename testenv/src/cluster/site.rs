//! The network of one cluster. It is isolated, except for one port of the host's loopback that
//! leads to its API server.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{components::ready, credentials::SERVICE_ADDRESS, error::Error, process::Process};

/// The control plane's address among the nodes.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 1);
/// The prefix length of the nodes' network.
const LENGTH: u8 = 24;
/// The API server's port: that of the Service `kubernetes`, so that the Service's address needs no
/// proxy.
const API_SERVER_PORT: u16 = 443;

/// A network namespace, kept by one process.
#[derive(Debug)]
pub(crate) struct Site {
    process: Process,
    port: u16,
}

impl Site {
    /// Makes the namespace. `machine` is the program, and its log is in `directory`.
    pub(crate) async fn open(machine: &Path, directory: &Path) -> Result<Self, Error> {
        let mut command = Command::new(machine);
        command
            .arg("site")
            .arg(format!("--gateway={GATEWAY}/{LENGTH}"))
            .arg(format!("--service={SERVICE_ADDRESS}:{API_SERVER_PORT}"));
        let process = Process::start_apart(command, directory.join("site.log"))?;
        let process = ready("the site", process, async |process| {
            port_in(&process.log()).map(drop).ok_or("no port".into())
        })
        .await?;
        let port = port_in(&process.log()).unwrap_or_default();
        Ok(Self { process, port })
    }

    /// The port of our loopback that leads to the API server.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The API server's address, as nodes and the cluster's components use it.
    pub(crate) fn url() -> String {
        format!("https://{SERVICE_ADDRESS}:{API_SERVER_PORT}")
    }

    pub(crate) fn api_server() -> SocketAddr {
        (GATEWAY, API_SERVER_PORT).into()
    }

    pub(crate) fn gateway() -> Ipv4Addr {
        GATEWAY
    }

    /// The address of the node with this number, and the length of its network.
    pub(crate) fn node_address(number: u8) -> (Ipv4Addr, u8) {
        let [a, b, c, _] = GATEWAY.octets();
        // Behind the gateway, and below broadcast.
        (Ipv4Addr::new(a, b, c, number.saturating_add(10)), LENGTH)
    }

    /// The path of the network namespace.
    pub(crate) fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.process.pid()).into()
    }

    /// A command that runs in this network.
    pub(crate) fn command(&self, program: &Path) -> Command {
        command_in(&self.network(), program)
    }

    /// The flags for the API server's addresses.
    #[expect(
        clippy::unused_self,
        reason = "only a cluster with a site may listen like this"
    )]
    pub(crate) fn api_server_flags(&self) -> Vec<OsString> {
        vec![
            "--bind-address=0.0.0.0".into(),
            format!("--advertise-address={GATEWAY}").into(),
            format!("--secure-port={API_SERVER_PORT}").into(),
            // Nodes report no IP address before they are initialised.
            "--kubelet-preferred-address-types=InternalIP".into(),
        ]
    }
}

/// A command that runs in a network. The program replaces the command's process, so signals reach
/// it.
pub(crate) fn command_in(network: &Path, program: &Path) -> Command {
    let mut entered = "--net=".to_owned();
    entered += &network.to_string_lossy();
    let mut command = Command::new("nsenter");
    command.arg(entered).arg("--").arg(program);
    command
}

fn port_in(log: &str) -> Option<u16> {
    let line = log.lines().find(|line| line.starts_with("site: ready"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_what_the_ready_line_ends_with() {
        assert_eq!(port_in("\nsite: ready on port 40123\n"), Some(40123));
        assert_eq!(port_in("site: the bridge: not permitted\n"), None);
    }

    #[test]
    fn nodes_have_addresses_of_the_same_network() {
        assert_eq!(
            Site::node_address(1),
            (Ipv4Addr::new(10, 98, 0, 11), LENGTH)
        );
    }
}
