//! What twists do to the other parts of a load balancer that Services share.

use provider_sdk::Failure;

use crate::cloud::State;
use crate::load_balancers::{Asker, LoadBalancer, yield_ports};
use crate::provider::not_saved;

/// Takes from the other parts the ports that this one wants.
pub(super) fn rob(
    state: &mut State,
    asker: &Asker<'_>,
    part: &LoadBalancer,
    now_ms: u64,
) -> Result<(), Failure> {
    for mut peer in peers(state, asker, part) {
        let before = peer.config.ports.len();
        yield_ports(&mut peer, part);
        if peer.config.ports.len() < before {
            put(state, peer, now_ms, "take the port from")?;
        }
    }
    Ok(())
}

/// Gives the other parts the targets of this one.
pub(super) fn retarget(
    state: &mut State,
    asker: &Asker<'_>,
    part: &LoadBalancer,
    now_ms: u64,
) -> Result<(), Failure> {
    for mut peer in peers(state, asker, part) {
        peer.targets.clone_from(&part.targets);
        put(state, peer, now_ms, "set the same targets of")?;
    }
    Ok(())
}

/// Removes the other parts.
pub(super) fn remove(
    state: &mut State,
    asker: &Asker<'_>,
    part: &LoadBalancer,
    now_ms: u64,
) -> Result<(), Failure> {
    for peer in peers(state, asker, part) {
        let removed = state.remove_load_balancer(&peer.handle, now_ms);
        removed.map_err(|error| not_saved(&error))?;
        state.wrote(format!("delete the neighbour {}", peer.handle));
    }
    Ok(())
}

fn peers(state: &State, asker: &Asker<'_>, part: &LoadBalancer) -> Vec<LoadBalancer> {
    let peers = state.objects.load_balancers.peers(asker, part);
    peers.into_iter().cloned().collect()
}

fn put(state: &mut State, peer: LoadBalancer, now_ms: u64, what: &str) -> Result<(), Failure> {
    let line = format!("{what} load balancer {}", peer.handle);
    let saved = state.put_load_balancer(peer, now_ms);
    saved.map_err(|error| not_saved(&error))?;
    state.wrote(line);
    Ok(())
}
