//! The Nodes from the API server. Before many routes are removed, the store alone is not enough
//! (▲R7).

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};

use super::facts::NodeFacts;
use crate::ownership::Ownership;

/// Nodes in a page.
const PAGE: u32 = 500;
/// The most pages to read. A longer list is an error.
const MOST_PAGES: usize = 100;

/// All Nodes. `Err`: they could not be read, as text for people.
pub(super) async fn nodes(
    client: Client,
    ownership: &Ownership,
    provider: &str,
) -> Result<Vec<NodeFacts>, String> {
    let nodes: Api<Node> = Api::all(client);
    let mut params = ListParams::default().limit(PAGE);
    let mut facts = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = nodes
            .list(&params)
            .await
            .map_err(|error| error.to_string())?;
        let read = page.items.iter();
        facts.extend(read.map(|node| NodeFacts::of(node, ownership, provider)));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(facts),
        }
    }
    Err(format!(
        "the list of Nodes has more than {MOST_PAGES} pages"
    ))
}
