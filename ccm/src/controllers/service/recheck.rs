//! Confirms with the API server that a target set is empty. A store that lost its Nodes must not
//! empty every load balancer.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

use super::targets::NodeSelector;

/// Nodes in a page.
const PAGE: u32 = 500;
/// The most pages to read. If the list is longer, no set counts as empty.
const MOST_PAGES: usize = 100;

/// The selectors that match no target in the API server either. `Err`: the request failed.
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
                .any(|node| selector.matches(node) && eligible(node))
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
