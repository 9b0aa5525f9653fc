//! A target set that shrank to empty is read from the API server itself first: a store that lost its Nodes must not empty every load balancer.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

use super::targets::NodeSelector;

/// Nodes per page.
const PAGE: u32 = 500;
/// No cluster has more pages; a server that never ends a list is not believed.
const MOST_PAGES: usize = 100;

/// The selectors for which the API server, too, has no target. `Err`: it could not be asked.
pub(super) async fn still_empty(
    client: Client,
    mut selectors: Vec<NodeSelector>,
    eligible: impl Fn(&Node) -> bool,
) -> Result<Vec<NodeSelector>, kube::Error> {
    let nodes: Api<Node> = Api::all(client);
    let mut params = ListParams::default().limit(PAGE);
    for _ in 0..MOST_PAGES {
        let page = nodes.list(&params).await?;
        selectors.retain(|selector| {
            !page
                .items
                .iter()
                .any(|node| eligible(node) && selector.matches(node))
        });
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() && !selectors.is_empty() => {
                params = params.continue_token(&token);
            }
            _ => return Ok(selectors),
        }
    }
    Ok(Vec::new())
}
