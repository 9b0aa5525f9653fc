//! Objects that a hook created.

use std::sync::Arc;

use cloud_provider_api::v1alpha1 as pb;

use super::super::call::shown;
use super::super::hooks::Hook;
use super::super::ledger::Thing;
use super::super::run::Shared;
use super::super::well_formed::network;
use super::{CALL, said, session_of};

/// Removes what a hook created. A check may have removed it already. So if the hook fails, the
/// suite asks the provider whether the object still exists.
pub(super) async fn remove(shared: &Arc<Shared>, thing: &Thing) -> Result<(), String> {
    let removed = match thing {
        Thing::Instance { name, provider_id } => {
            let variables = [("NAME", name.as_str()), ("PROVIDER_ID", provider_id)];
            shared.hooks.run(Hook::InstanceRemove, &variables).await
        }
        Thing::UnmarkedLoadBalancer { handle } => {
            let variables = [("HANDLE", handle.as_str())];
            shared.hooks.run(Hook::LoadBalancerRemove, &variables).await
        }
        Thing::UnmarkedRoute { name, cidr } => {
            let variables = [("NAME", name.as_str()), ("CIDR", cidr)];
            shared.hooks.run(Hook::RouteRemove, &variables).await
        }
        Thing::LoadBalancer { .. } | Thing::Route { .. } => return Ok(()),
    };
    match removed {
        Err(stop) if is_there(shared, thing).await.unwrap_or(true) => Err(said(&stop)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the provider still finds the object.
async fn is_there(shared: &Arc<Shared>, thing: &Thing) -> Result<bool, String> {
    let session = session_of(shared, &format!("{}-look", shared.ledger.run_id())).await?;
    match thing {
        Thing::Instance { name, provider_id } => {
            let request = pb::LookupInstancesRequest {
                nodes: vec![pb::NodeView {
                    name: name.clone(),
                    uid: uuid::Uuid::new_v4().to_string(),
                    provider_id: Some(provider_id.clone()),
                    ..Default::default()
                }],
                facets: vec![pb::InstanceFacet::Existence.into()],
                ..Default::default()
            };
            let asked = session.call_within(request, CALL).await;
            let answer = asked.came.map_err(|status| shown(&status))?;
            let absent = answer.results.iter().any(|result| {
                matches!(&result.outcome, Some(pb::lookup_instance_result::Outcome::Found(found))
                    if found.state() == pb::InstanceState::Absent)
            });
            Ok(!absent)
        }
        Thing::UnmarkedLoadBalancer { handle } => {
            let service = pb::ServiceView {
                namespace: "default".into(),
                name: "look".into(),
                uid: uuid::Uuid::new_v4().to_string(),
                r#type: "LoadBalancer".into(),
                ..Default::default()
            };
            let request = pb::GetLoadBalancerRequest {
                service: Some(service),
                handle: Some(handle.clone()),
                ..Default::default()
            };
            let asked = session.call_within(request, CALL).await;
            let answer = asked.came.map_err(|status| shown(&status))?;
            let absent = matches!(&answer.outcome, Some(pb::get_load_balancer_response::Outcome::Found(found))
                if found.presence() == pb::LoadBalancerPresence::Absent);
            Ok(!absent)
        }
        Thing::UnmarkedRoute { cidr, .. } => {
            let listed = session
                .list_within(pb::ListRoutesRequest::default(), CALL)
                .await;
            let routes = listed.items().map_err(|stop| said(&stop))?;
            let cidr = network(cidr);
            Ok(routes
                .iter()
                .any(|route| network(&route.destination_cidr) == cidr))
        }
        Thing::LoadBalancer { .. } | Thing::Route { .. } => Ok(true),
    }
}
