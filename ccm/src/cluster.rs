//! Stores of Nodes, Services and ServiceCIDRs. One watch feeds each (B-M8), if an enabled
//! controller reads it.

mod apply;
mod change;
mod ranges;
mod watch;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::{Config, Controller};
use crate::core::{Key, lock};

use apply::{First, State};
pub(crate) use change::{Change, Changes};

/// The stores of one process.
#[derive(Clone, Default)]
pub(crate) struct Cluster {
    /// All Nodes.
    pub(crate) nodes: Store<Node>,
    /// All Services.
    pub(crate) services: Store<Service>,
    /// The Service ranges, unless the operator set them.
    service_cidrs: Store<ServiceCIDR>,
    /// `--service-cluster-ip-range`.
    given_ranges: Arc<[IpNet]>,
    /// Which of the three are watched. The others stay empty.
    watched: Watched,
}

/// Which of these kinds the enabled controllers read. The ccm needs no right to watch the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Watched {
    nodes: bool,
    services: bool,
    service_cidrs: bool,
}

impl Watched {
    fn by(controllers: &BTreeSet<Controller>, given_ranges: &[IpNet]) -> Self {
        let services = controllers.contains(&Controller::ServiceLb);
        Self {
            nodes: controllers
                .iter()
                .any(|controller| *controller != Controller::VolumeLabel),
            services,
            service_cidrs: services && given_ranges.is_empty(),
        }
    }
}

impl Cluster {
    /// Creates the stores. Spawns into `tasks` one watch for each store that the controllers of
    /// `config` read. A watch runs until its task is aborted. The jitter of the watches' retries
    /// comes from `seed`.
    pub(crate) fn start(
        client: &Client,
        seed: u64,
        config: &Config,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let cluster = Self {
            watched: Watched::by(&config.controllers, &config.service.cluster_ip_ranges),
            given_ranges: config.service.cluster_ip_ranges.as_slice().into(),
            ..Self::default()
        };
        if let Some(nodes) = cluster.watched_nodes().cloned() {
            let client = client.clone();
            tasks.spawn(async move { nodes.watch(client, seed).await });
        }
        if let Some(services) = cluster.watched_services().cloned() {
            let client = client.clone();
            tasks.spawn(async move { services.watch(client, seed.wrapping_add(1)).await });
        }
        if let Some(ranges) = cluster.watched_service_cidrs().cloned() {
            let client = client.clone();
            tasks.spawn(async move { ranges.watch(client, seed.wrapping_add(2)).await });
        }
        cluster
    }

    /// A cluster with these Nodes, for tests of controllers.
    #[cfg(test)]
    pub(crate) fn of_nodes(nodes: Store<Node>) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// Returns when the first list of every watched kind is complete. For ServiceCIDRs, a refusal
    /// by the API server also ends the wait.
    pub(crate) async fn synced(&self) {
        if let Some(nodes) = self.watched_nodes() {
            nodes.synced().await;
        }
        if let Some(services) = self.watched_services() {
            services.synced().await;
        }
        if let Some(ranges) = self.watched_service_cidrs() {
            ranges.synced_or_refused().await;
        }
    }

    pub(crate) fn watched_nodes(&self) -> Option<&Store<Node>> {
        self.watched.nodes.then_some(&self.nodes)
    }

    pub(crate) fn watched_services(&self) -> Option<&Store<Service>> {
        self.watched.services.then_some(&self.services)
    }

    pub(crate) fn watched_service_cidrs(&self) -> Option<&Store<ServiceCIDR>> {
        let watched = self.watched.service_cidrs;
        watched.then_some(&self.service_cidrs)
    }
}

/// All objects of one kind as the watch last delivered them, without the fields that `Prune::prune`
/// drops. Clones share one state.
pub(crate) struct Store<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    first: tokio::sync::watch::Sender<First>,
    /// The last failure of the watch, until the next event other than `Init`.
    trouble: Mutex<Option<(Instant, String)>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                first: tokio::sync::watch::Sender::new(First::Awaited),
                trouble: Mutex::default(),
            }),
        }
    }
}

impl<K> Store<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        lock(&self.shared.state)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.state().objects.get(key).cloned()
    }

    /// The objects whose second index is `by` (see `Prune::found_by`), in the order of their keys.
    /// It uses the index and scans nothing.
    pub(crate) fn found_by(&self, by: &str) -> Vec<Arc<K>> {
        let state = self.state();
        let keys = state.found_by.get(by).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned())
            .collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.state().objects.values().cloned().collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state().objects.len()
    }

    /// Changes from now on, after one change `None -> new` for each object in the store. They are
    /// coalesced by key: there is at most one unread change for each key. Dropping the `Changes`
    /// frees the unread ones.
    ///
    /// An object makes no change if, after pruning, only its resourceVersion differs, as after a
    /// heartbeat. `get` returns the new object all the same.
    pub(crate) fn subscribe(&self) -> Changes<K> {
        let inbox = Arc::default();
        self.state().subscribe(&inbox);
        Changes::new(self.clone(), inbox)
    }

    pub(crate) async fn synced(&self) {
        self.first(|first| first == First::Complete).await;
    }

    /// Returns when the first list is complete, or when the API server refused it. So the ccm does
    /// not wait for a right to an optional kind.
    async fn synced_or_refused(&self) {
        self.first(|first| first != First::Awaited).await;
    }

    async fn first(&self, is: impl Fn(First) -> bool) {
        // The sender lives as long as `self`, so this cannot fail.
        let mut first = self.shared.first.subscribe();
        let _ = first.wait_for(|first| is(*first)).await;
    }

    pub(crate) fn is_synced(&self) -> bool {
        *self.shared.first.borrow() == First::Complete
    }
}

/// A store of these objects that counts as synced, for tests of its readers.
#[cfg(test)]
impl<K: kube::Resource + crate::core::Prune + Clone> FromIterator<K> for Store<K> {
    fn from_iter<I: IntoIterator<Item = K>>(objects: I) -> Self {
        use kube::runtime::watcher::Event;
        let store = Self::default();
        store.apply(Event::Init);
        for object in objects {
            store.apply(Event::InitApply(object));
        }
        store.apply(Event::InitDone);
        store
    }
}

#[cfg(test)]
mod api_server_tests;
#[cfg(test)]
mod tests;
