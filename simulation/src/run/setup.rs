//! The world before the first step: clouds, and the command lines of the ccms.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ccm::args::{Args, Config};
use provider_mock::{Cloud, Fault, FaultKind, Fixture, Weather};

use crate::checker::{Rules, SECOND_LEASE};
use crate::plan::{CLASS, SECOND_CLASS, Setup, Trait, UNUSED_CLASS};

/// The owner ID of another cluster.
pub const FOREIGN_OWNER: &str = "another-cluster";

pub(super) fn rules(setup: &Setup) -> Rules {
    let slow = Duration::from_millis(setup.slow_ms);
    Rules {
        lease: Duration::from_secs(setup.lease_seconds),
        migration: setup.has(Trait::Migration),
        goes_on: setup.has(Trait::GoesOn).then_some(slow),
        max_in_flight: setup.max_in_flight as usize,
    }
}

/// The clouds of the provider and, if there is one, of the second provider.
pub(super) fn clouds(setup: &Setup) -> anyhow::Result<Vec<Cloud>> {
    let mut fixture = Fixture::default();
    let offered = &mut fixture.capabilities;
    offered.instances.listing = setup.has(Trait::ListsInstances);
    offered.instances.power_state = setup.has(Trait::PowerState);
    offered.instances.max_in_flight = setup.max_in_flight;
    if setup.has(Trait::NodeByNode) {
        offered.instances.max_batch = 1;
    }
    offered.routes.offered = setup.has(Trait::Routes);
    offered.routes.tracks_node_addresses = setup.has(Trait::TracksAddresses);
    offered.routes.max_in_flight = setup.max_in_flight;
    offered.changes.offered = setup.has(Trait::Hints);
    let balancers = &mut offered.load_balancers;
    balancers.listing = setup.has(Trait::ListsBalancers);
    balancers.in_sync = setup.has(Trait::InSync);
    balancers.classes.retain(|_| setup.has(Trait::DefaultClass));
    balancers.max_in_flight = setup.max_in_flight;
    if setup.has(Trait::Class) {
        balancers.classes.push(CLASS.to_owned());
    }
    if balancers.classes.is_empty() {
        // A provider with load balancers must name a class, or serve Services without one.
        balancers.classes.push(UNUSED_CLASS.to_owned());
    }
    fixture.provisioning.load_balancer = Duration::from_secs(setup.made_in_s).into();
    fixture.provisioning.deletion = Duration::from_secs(setup.gone_in_s).into();
    let mut clouds = vec![Cloud::new(fixture.clone())?];
    if setup.has(Trait::Second) {
        let offered = &mut fixture.capabilities;
        offered.instances.offered = false;
        offered.zones.offered = false;
        offered.routes.offered = false;
        offered.load_balancers.classes = vec![SECOND_CLASS.to_owned()];
        clouds.push(Cloud::new(fixture)?);
    }
    for cloud in &clouds {
        cloud.set_weather(Weather {
            fail: None,
            slow_ms: setup.slow_ms,
        });
        if setup.has(Trait::GoesOn) {
            cloud.tell("goes-on-after-cancel")?;
        }
        ways(setup, cloud)?;
    }
    Ok(clouds)
}

/// Sets properties of the provider that are no faults.
pub(super) fn ways(setup: &Setup, cloud: &Cloud) -> anyhow::Result<()> {
    if setup.has(Trait::SilentGet) {
        cloud.set_fault(Fault::new("GetLoadBalancer", FaultKind::IngressAddress))?;
    }
    Ok(())
}

/// The configuration of the ccm, or of the second one.
pub(super) fn config(setup: &Setup, second: bool) -> anyhow::Result<Config> {
    let lease = setup.lease_seconds;
    let mut line = vec![
        "ccm".to_owned(),
        "--provider=mock=unix:///in/memory/provider.sock".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--leader-elect-lease-duration={lease}s"),
        format!("--leader-elect-renew-deadline={}s", lease * 2 / 3),
        format!("--leader-elect-retry-period={}s", lease / 6),
        // A short period, so that the ccm searches for orphans within a run.
        "--orphaned-load-balancer-period=2m".to_owned(),
        "--node-status-update-frequency=2m".to_owned(),
    ];
    if second {
        line.push("--controllers=service".to_owned());
        line.push(format!("--leader-elect-resource-name={SECOND_LEASE}"));
    } else {
        line.push(format!("--load-balancer-classes=default,{CLASS}"));
        if setup.has(Trait::Routes) {
            line.push("--allocate-node-cidrs".to_owned());
            line.push("--cluster-cidr=10.244.0.0/16".to_owned());
        }
        if setup.has(Trait::Migration) {
            line.push("--enable-leader-migration".to_owned());
        }
    }
    if second || !setup.has(Trait::Routes) {
        line.push("--configure-cloud-routes=false".to_owned());
    }
    parsed(line)
}

/// Parsing a command line takes as long as a minute of a run, so each is parsed once.
fn parsed(line: Vec<String>) -> anyhow::Result<Config> {
    static PARSED: Mutex<BTreeMap<Vec<String>, Config>> = Mutex::new(BTreeMap::new());
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(config) = parsed.get(&line) {
        return Ok(config.clone());
    }
    let config = Args::parse_from_command_line(&line)
        .map_err(|error| anyhow::anyhow!("{error:?}"))?
        .into_config()
        .map_err(|wrong| anyhow::anyhow!("{wrong:?}"))?;
    parsed.insert(line, config.clone());
    Ok(config)
}
