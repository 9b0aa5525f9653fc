//! The fuzz targets. Each takes bytes, turns them into the input that an attacker controls, and
//! panics if a rule is broken.
//!
//! `cargo test` plays the seeds, the inputs that were found before, and as many mutations as
//! `Target::rounds` says.

#[cfg(test)]
mod driver;

use crate::controllers::{node, node_lifecycle, service, volume};
use crate::{args, provider, serve, writes};

/// One target.
pub struct Target {
    /// Its name, and that of its folder in `fuzz/regressions`.
    pub name: &'static str,
    /// Plays one input.
    pub play: fn(&[u8]),
    /// The first inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many mutations `cargo test` plays.
    pub rounds: usize,
}

/// All targets.
pub static TARGETS: [Target; 12] = [
    Target {
        name: "answers",
        play: provider::fuzz::answers,
        seeds: provider::fuzz::answer_seeds,
        rounds: 2_000,
    },
    Target {
        name: "decoding",
        play: provider::fuzz::decoding,
        seeds: provider::fuzz::answer_seeds,
        rounds: 10_000,
    },
    Target {
        name: "connection",
        play: provider::fuzz::connection,
        seeds: provider::fuzz::connection_seeds,
        rounds: 2_000,
    },
    Target {
        name: "nodes",
        play: node::fuzz::nodes,
        seeds: node::fuzz::seeds,
        rounds: 10_000,
    },
    Target {
        name: "services",
        play: service::fuzz::services,
        seeds: service::fuzz::service_seeds,
        rounds: 10_000,
    },
    Target {
        name: "balancers",
        play: service::fuzz::balancers,
        seeds: service::fuzz::balancer_seeds,
        rounds: 10_000,
    },
    Target {
        name: "certificates",
        play: serve::fuzz::certificates,
        seeds: serve::fuzz::certificate_seeds,
        rounds: 1_000,
    },
    Target {
        name: "headers",
        play: serve::fuzz::headers,
        seeds: serve::fuzz::header_seeds,
        rounds: 5_000,
    },
    Target {
        name: "reviews",
        play: volume::fuzz::reviews,
        seeds: volume::fuzz::seeds,
        rounds: 5_000,
    },
    Target {
        name: "parsers",
        play: args::fuzz::parsers,
        seeds: args::fuzz::seeds,
        rounds: 3_000,
    },
    Target {
        name: "brake",
        play: node_lifecycle::fuzz::brake,
        seeds: node_lifecycle::fuzz::seeds,
        rounds: 200,
    },
    Target {
        name: "events",
        play: writes::fuzz::events,
        seeds: writes::fuzz::seeds,
        rounds: 12,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// A runtime on this thread. Its clock jumps when there is nothing else to do.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

/// Bytes of many kinds, for targets that take any bytes.
pub(crate) fn noise(length: usize) -> Vec<Vec<u8>> {
    let one = |seed: u8| {
        let mut byte = seed.wrapping_mul(16);
        let next = |_| {
            byte = byte.wrapping_mul(5).wrapping_add(seed | 1);
            byte
        };
        (0..length).map(next).collect()
    };
    (0..16).map(one).collect()
}
