//! Where a provider's cloud scope is remembered (▲S20): on the Lease, or, without one, as long as this process lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::args::LeaderElectionConfig;
use crate::lease::Elector;

/// What was last seen, and how to remember another.
pub(super) struct Memory {
    /// The annotations of the Lease.
    pub(super) annotations: watch::Receiver<BTreeMap<String, String>>,
    /// The annotation of this provider.
    pub(super) key: String,
    /// Remembers a scope.
    pub(super) record: Arc<dyn Fn(String) + Send + Sync>,
    /// What the operator runs, with `=SCOPE` behind it, to accept a scope.
    pub(super) accept_command: String,
}

impl Memory {
    pub(super) fn new(
        elector: Option<&Elector>,
        config: &LeaderElectionConfig,
        provider: &str,
    ) -> Self {
        // A provider's name has at most 47 bytes, so this keeps within the 63 of an annotation's name.
        let key = format!("{}cloud-scope-{provider}", crate::DOMAIN);
        let written = key.clone();
        if let Some(elector) = elector.cloned() {
            return Self {
                annotations: elector.annotations(),
                record: Arc::new(move |scope| elector.set_annotation(&written, &scope)),
                accept_command: format!(
                    "kubectl annotate lease -n {} {} --overwrite {key}",
                    config.resource_namespace, config.resource_name
                ),
                key,
            };
        }
        let memory = watch::Sender::new(BTreeMap::new());
        Self {
            annotations: memory.subscribe(),
            record: Arc::new(move |scope| {
                memory.send_modify(|seen| {
                    seen.insert(written.clone(), scope);
                });
            }),
            accept_command: "ccm --accept-cloud-scope".to_owned(),
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;

    #[test]
    fn s20_without_a_lease_the_scope_is_remembered_in_memory() {
        let config = Args::parse_from(["ccm"]).into_config().unwrap();
        let memory = Memory::new(None, &config.leader_election, "mock");
        (memory.record)("account 1".to_owned());
        assert_eq!(
            *memory.annotations.borrow(),
            [(
                "grpc-ccm.io/cloud-scope-mock".to_owned(),
                "account 1".to_owned()
            )]
            .into()
        );
    }
}
