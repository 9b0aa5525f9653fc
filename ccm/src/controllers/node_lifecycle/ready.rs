//! Takes the shutdown taint off Nodes that are Ready again (B-L3). It needs no provider, and waits
//! for no lookup.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::{act, owned, plan};
use crate::args::ProviderEndpoint;
use crate::controller::LoopContext;
use crate::ownership::Ownership;
use crate::provider::{ProviderStatus, within_bounds};

/// Runs every period, until `context.stop`.
pub(super) async fn watch(context: &LoopContext) {
    let period = context.config.node_lifecycle.monitor_period;
    let mut ownership = None;
    loop {
        let start = Instant::now();
        let now = known(&context.status.borrow(), &context.config.providers);
        ownership = now.or(ownership);
        if let Some(ownership) = &ownership {
            take_taints_off(context, ownership).await;
        }
        let next = sleep_until(start + period);
        if context.stop.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}

/// Which Nodes belong to the provider; `None` if that is unknown now. Then the caller keeps its
/// last value.
fn known(status: &ProviderStatus, configured: &[ProviderEndpoint]) -> Option<Arc<Ownership>> {
    if let Some(session) = &status.session {
        return Some(Arc::clone(&session.ownership));
    }
    // The provider answers but is not initialised: its prefixes count within the operator's flags.
    let [endpoint] = configured else {
        return None;
    };
    let info = within_bounds(status.info.as_deref()?, endpoint);
    let ownership = Ownership::of(&[(&endpoint.name, &info)], None).ok()?;
    Some(Arc::new(ownership))
}

/// Takes the shutdown taint off each Node that is Ready again.
pub(super) async fn take_taints_off(context: &LoopContext, ownership: &Ownership) {
    let nodes = owned(context, ownership);
    let tainted = nodes.into_iter().filter_map(|node| {
        let taints = plan::without_shutdown_taint(&node)?;
        Some((node, taints))
    });
    act::set_all_taints(context, tainted.collect(), "removed").await;
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1 as api;

    use super::*;

    #[test]
    fn s21_prefixes_outside_of_the_flag_do_not_count_before_initialize_either() {
        let info = api::GetProviderInfoResponse {
            provider_id_prefixes: vec!["mock://".into(), "aws://".into()],
            ..Default::default()
        };
        let status = ProviderStatus {
            info: Some(Arc::new(info)),
            ..ProviderStatus::default()
        };
        let owner = |bounds: Option<Vec<String>>, id: &str| {
            let endpoint = ProviderEndpoint {
                name: "mock".into(),
                socket: "/a.sock".into(),
                peer_uid: None,
                accepted_cloud_scope: None,
                load_balancer_classes: None,
                provider_id_prefixes: bounds,
            };
            let ownership = known(&status, &[endpoint]).unwrap();
            ownership.owner_of_id(id).map(str::to_owned)
        };
        let bounds = || Some(vec!["mock://".to_owned()]);
        assert_eq!(owner(bounds(), "mock://1").as_deref(), Some("mock"));
        assert_eq!(owner(bounds(), "aws://1"), None);
        assert_eq!(owner(None, "aws://1").as_deref(), Some("mock"));
    }
}
