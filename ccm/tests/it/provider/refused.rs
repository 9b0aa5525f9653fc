//! Providers that the ccm does not work with: one that needs a newer contract, one of another uid,
//! and one that does not serve its socket.

use std::time::Duration;

use provider_mock::{Fault, FaultKind, Fixture};
use tokio::time::Instant;

use crate::world::{SOON, World, said};

#[tokio::test]
async fn a_provider_that_needs_a_newer_contract_is_refused_with_what_to_do() {
    let mut world = World::new(Fixture::default()).await;
    let demand = Fault::new("GetProviderInfo", FaultKind::MinControllerMinor).value("98");
    let id = world.cloud().set_fault(demand).unwrap();
    let ccm = world.ccm(&[]);
    let line = said(&ccm, "upgrade the ccm").await;
    for text in [
        "WARN",
        "provider=mock",
        "minor 98 or higher of the contract v1alpha1",
        concat!("this ccm ", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(line.contains(text), "{text}: {line}");
    }
    let counts = world.cloud().call_counts();
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["GetProviderInfo"]);
    // It stays away from the election: another replica may have a provider that fits.
    assert!(world.lease().await.is_err());
    world.cloud().clear_fault(id);
    world.mock.restart().await.unwrap();
    world.led_by(&ccm).await;
}

#[tokio::test]
async fn a_socket_of_another_uid_is_told_nothing() {
    let mut world = World::new(Fixture::default()).await;
    let ours = our_uid();
    let ccm = world.ccm(&[&format!("--provider-peer-uid={}", ours + 1)]);
    let line = said(&ccm, "sending nothing to it").await;
    assert!(line.contains(&format!("served by uid {ours}")), "{line}");
    assert!(
        line.contains(&format!("uid {} is configured", ours + 1)),
        "{line}"
    );
    let right = world.ccm(&[&format!("--provider-peer-uid={ours}")]);
    world.led_by(&right).await;
    // Only the ccm that expects the right UID ever asked.
    assert_eq!(world.cloud().call_count("GetProviderInfo"), 1);
}

/// This process's UID: the owner of its `/proc` entry.
fn our_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    let own = std::fs::metadata("/proc/self").unwrap();
    own.uid()
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_waited_for_and_told_every_ten_seconds() {
    let mut world = World::new(Fixture::default()).await;
    world.mock.shutdown().await;
    let ccm = world.ccm(&[]);
    let path = world.mock.path().display().to_string();
    let told = || {
        let log = ccm.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("it does not exist yet"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let line = said(&ccm, "it does not exist yet").await;
    assert!(
        line.contains(&format!("waiting for the socket {path}")),
        "{line}"
    );
    assert!(line.contains("provider=mock"), "{line}");
    let lines = testenv::eventually("it is said again", SOON, async || {
        let lines = told();
        if lines.len() >= 2 {
            Ok(lines)
        } else {
            Err(lines.join("\n"))
        }
    })
    .await;
    let waited = logged_at(&lines[1]).duration_since(logged_at(&lines[0]));
    assert!((9..20).contains(&waited.as_secs()), "{lines:#?}");
    assert!(world.lease().await.is_err(), "it stands for election");
    world.mock.restart().await.unwrap();
    let back = Instant::now();
    world.led_by(&ccm).await;
    let took = back.elapsed();
    println!("a ccm whose provider came led after {took:?}");
    // The ccm tries to connect more often than it reports that the socket is missing: the next
    // report comes 20 s after the second.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// The time at the beginning of a line of the log.
fn logged_at(line: &str) -> jiff::Timestamp {
    let time = line.split_whitespace().next();
    time.and_then(|time| time.parse().ok()).expect("a time")
}
