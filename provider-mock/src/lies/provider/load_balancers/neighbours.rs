//! Damage to the other parts of a load balancer that Services share.

use provider_sdk::Failure;

use super::super::Twisted;
use crate::load_balancers::{Asker, LoadBalancer, LoadBalancerConfig, listener};
use crate::provider::not_saved;

impl Twisted {
    /// Takes the ports that the Service wants from the other parts.
    pub(super) fn rob(&self, asker: &Asker<'_>) -> Result<(), Failure> {
        let part = LoadBalancer {
            handle: self.own(asker).map(|own| own.handle).unwrap_or_default(),
            config: LoadBalancerConfig::of(asker.service),
            ..LoadBalancer::default()
        };
        let wanted = part.config.listeners();
        for mut peer in self.peers(asker, &part) {
            let before = peer.config.ports.len();
            let ports = &mut peer.config.ports;
            ports.retain(|port| listener(port).is_none_or(|it| !wanted.contains(&it)));
            if ports.len() < before {
                self.put(peer, "take the port from")?;
            }
        }
        Ok(())
    }

    /// Sets the targets of the other parts to those of the Service's own part.
    pub(super) fn retarget(&self, asker: &Asker<'_>) -> Result<(), Failure> {
        let Some(part) = self.own(asker) else {
            return Ok(());
        };
        for mut peer in self.peers(asker, &part) {
            if peer.targets != part.targets {
                peer.targets.clone_from(&part.targets);
                self.put(peer, "set the same targets of")?;
            }
        }
        Ok(())
    }

    /// Removes the other parts.
    pub(super) fn remove_peers(
        &self,
        asker: &Asker<'_>,
        part: &LoadBalancer,
    ) -> Result<(), Failure> {
        for peer in self.peers(asker, part) {
            self.cloud.count_lie();
            let now_ms = self.cloud.now_ms();
            let mut state = self.cloud.state();
            let removed = state.remove_load_balancer(&peer.handle, now_ms);
            removed.map_err(|error| not_saved(&error))?;
            state.wrote(format!("delete the neighbour {}", peer.handle));
        }
        Ok(())
    }

    fn peers(&self, asker: &Asker<'_>, part: &LoadBalancer) -> Vec<LoadBalancer> {
        let state = self.cloud.state();
        let peers = state.objects.load_balancers.peers(asker, part);
        peers.into_iter().cloned().collect()
    }
}
