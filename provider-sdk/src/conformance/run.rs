//! What a check has in hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cloud_provider_api::v1alpha1 as pb;
use pb::InstanceFacet;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::check::{Lack, Need, Skipped, Stop, Verdict};
use super::config::{Config, KnownInstance};
use super::hooks::{Hook, Hooks};
use super::ledger::{Ledger, Thing};
use super::session::Session;
use super::target::Target;

/// Of a check that could not look at everything.
const REST: &str = "what can be seen without that holds";

/// All checks of one run of the suite share this.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) config: Config,
    pub(crate) hooks: Hooks,
    pub(crate) ledger: Arc<Ledger>,
    /// GetProviderInfo at the beginning.
    pub(crate) info: pb::GetProviderInfoResponse,
    /// How long checks that take as long as one likes may take.
    pub(crate) soak: Duration,
    pub(crate) numbers: AtomicU64,
}

/// One check's own run: its owner ID is no other check's.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    /// What the check could not look at, and went on.
    unseen: Mutex<Vec<Skipped>>,
}

impl Run {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared,
            number,
            unseen: Mutex::default(),
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.shared.target
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What GetProviderInfo said at the beginning.
    pub(crate) fn info(&self) -> &pb::GetProviderInfoResponse {
        &self.shared.info
    }

    pub(crate) fn capabilities(&self) -> pb::Capabilities {
        self.shared.info.capabilities.clone().unwrap_or_default()
    }

    pub(crate) fn soak(&self) -> Duration {
        self.shared.soak
    }

    /// A part of what the check shows cannot be looked at here. The check goes on, for what else it finds; where it finds nothing it is skipped, not passed.
    pub(crate) fn unseen(&self, why: Stop) {
        if let Stop::Skipped(why) = why {
            let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
            if !unseen.iter().any(|known| known.reason == why.reason) {
                unseen.push(why);
            }
        }
    }

    /// How a check ends that found nothing wrong: passed, where it could look at everything.
    pub(crate) fn passed(&self) -> Verdict {
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if unseen.is_empty() {
            return Ok(());
        }
        let reasons: Vec<_> = unseen.iter().map(|one| one.reason.as_str()).collect();
        let reason = format!("{}; {REST}", reasons.join("; "));
        // What only the suite was not told how outweighs what the provider does not offer: somebody can help that.
        let setup = unseen.iter().any(|one| one.lack == Lack::Setup);
        Err(if setup {
            Stop::not_set_up(reason)
        } else {
            Stop::not_offered(reason)
        })
    }

    /// Runs a hook; skips the check where there is none.
    pub(crate) async fn hook(&self, hook: Hook, variables: &[(&str, &str)]) -> Verdict<String> {
        let printed = self.shared.hooks.run(hook, variables).await?;
        // What the check removes itself the clean-up does not look for.
        self.shared.ledger.removed_by(hook, variables);
        Ok(printed)
    }

    /// Whether there is such a hook; for checks that show more where there is one.
    pub(crate) fn has_hook(&self, hook: Hook) -> bool {
        self.shared.hooks.has(hook)
    }

    /// How many writes ever reached the cloud.
    pub(crate) async fn cloud_writes(&self) -> Verdict<u64> {
        let printed = self.hook(Hook::CloudWrites, &[]).await?;
        printed.parse().map_err(|_| {
            Stop::failed(
                "(hook)",
                "the hook cloud-writes",
                "it prints a number",
                printed,
            )
        })
    }

    /// Each cloud operation takes this long until the check ends, or until zero.
    pub(crate) async fn cloud_slow(&self, each: Duration) -> Verdict {
        let ms = each.as_millis().to_string();
        self.hook(Hook::CloudSlow, &[("MS", &ms)]).await.map(|_| ())
    }

    /// Each cloud operation fails until the check ends, or until `NONE`.
    pub(crate) async fn cloud_fail(&self, code: &str) -> Verdict {
        self.hook(Hook::CloudFail, &[("CODE", code)])
            .await
            .map(|_| ())
    }

    /// This check's cluster.
    pub(crate) fn cluster(&self) -> pb::ClusterRef {
        self.other_cluster("a")
    }

    /// Another cluster, of this check too: the same for the same word.
    pub(crate) fn other_cluster(&self, word: &str) -> pb::ClusterRef {
        let run_id = self.shared.ledger.run_id();
        pb::ClusterRef {
            name: run_id.to_owned(),
            owner_id: format!("{run_id}-{}-{word}", self.number),
        }
    }

    /// A new connection that nobody was initialised on. Its requests carry this check's cluster unless they carry one.
    pub(crate) async fn connect(&self) -> Verdict<Session> {
        self.connect_for(self.cluster()).await
    }

    pub(crate) async fn connect_for(&self, cluster: pb::ClusterRef) -> Verdict<Session> {
        let target = self.target();
        Session::dial(target.path(), cluster, Arc::clone(&self.shared.ledger))
            .await
            .map_err(|error| {
                Stop::failed(
                    "CORE-1",
                    format_args!("a new connection to {}", target.endpoint()),
                    "it is accepted",
                    error,
                )
            })
    }

    /// A new connection after Initialize for this check's cluster.
    pub(crate) async fn session(&self) -> Verdict<Session> {
        self.session_for(self.cluster(), &[]).await
    }

    /// A new connection after Initialize for this cluster, with these previous owner IDs.
    pub(crate) async fn session_for(
        &self,
        cluster: pb::ClusterRef,
        previous: &[&str],
    ) -> Verdict<Session> {
        let session = self.connect_for(cluster).await?;
        let request = pb::InitializeRequest {
            cluster: None,
            previous_owner_ids: previous.iter().map(ToString::to_string).collect(),
            cluster_cidrs: vec!["100.64.0.0/10".into()],
            kubernetes_version: "v1.36.3".into(),
        };
        session.call(request).await.success("PROV-2")?;
        Ok(session)
    }

    /// A connection without gRPC.
    pub(crate) async fn raw_connection(&self) -> Verdict<UnixStream> {
        let target = self.target();
        UnixStream::connect(target.path()).await.map_err(|error| {
            Stop::failed(
                "CORE-1",
                format_args!("a new connection to {}", target.endpoint()),
                "it is accepted",
                error,
            )
        })
    }

    /// A name that no other run uses: short enough for every cloud, lower-case letters, digits and dashes.
    pub(crate) fn name(&self, word: &str) -> String {
        let run_id = self.shared.ledger.run_id();
        let run = run_id.rsplit('-').next().unwrap_or(run_id);
        format!("{word}-{run}-{}", self.fresh())
    }

    /// A UID for a Service or a Node. Only Services with such a UID may be written: the suite touches nothing else.
    pub(crate) fn uid(&self) -> String {
        let uid = uuid::Uuid::new_v4().to_string();
        self.shared.ledger.issue_uid(&uid);
        uid
    }

    /// A destination for a route, used by nobody else in this run. Only such routes may be written.
    pub(crate) fn cidr(&self) -> String {
        loop {
            let number = self.fresh();
            // Begins somewhere else in each run, within 100.64.0.0/10.
            let start = u64::from(crc(self.shared.ledger.run_id()));
            let block = (start + number) % (1 << 14);
            let cidr = format!("100.{}.{}.0/24", 64 + (block >> 8), block & 255);
            if self.shared.ledger.issue_cidr(&cidr) {
                return cidr;
            }
        }
    }

    /// The same for IPv6.
    pub(crate) fn cidr6(&self) -> String {
        loop {
            let run = u64::from(crc(self.shared.ledger.run_id())) & 0xffff;
            let cidr = format!("fd64:6363:{run:x}:{:x}::/64", self.fresh() & 0xffff);
            if self.shared.ledger.issue_cidr(&cidr) {
                return cidr;
            }
        }
    }

    fn fresh(&self) -> u64 {
        self.shared.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A Node that no instance stands behind, with a name of its own.
    pub(crate) fn node(&self, word: &str) -> pb::NodeView {
        pb::NodeView {
            name: self.name(word),
            uid: uuid::Uuid::new_v4().to_string(),
            ..Default::default()
        }
    }

    /// The Node of a known instance.
    pub(crate) fn node_of(instance: &KnownInstance) -> pb::NodeView {
        pb::NodeView {
            name: instance.name.clone(),
            uid: uuid::Uuid::new_v4().to_string(),
            provider_id: instance.provider_id.clone(),
            ..Default::default()
        }
    }

    /// A Service of this check with one TCP port.
    pub(crate) fn service(&self, word: &str) -> pb::ServiceView {
        let offered = self.capabilities().load_balancers.unwrap_or_default();
        pb::ServiceView {
            namespace: "default".into(),
            name: self.name(word),
            uid: self.uid(),
            annotations: self.config().service_annotations.clone(),
            r#type: "LoadBalancer".into(),
            load_balancer_class: offered
                .classes
                .first()
                .filter(|_| !offered.default_class)
                .cloned(),
            ports: vec![pb::ServicePort {
                name: "http".into(),
                protocol: "TCP".into(),
                port: 80,
                target_port: "8080".into(),
                node_port: Some(30_080),
                ..Default::default()
            }],
            cluster_ips: vec!["10.96.0.10".into()],
            session_affinity: "None".into(),
            external_traffic_policy: "Cluster".into(),
            ip_families: vec!["IPv4".into()],
            ip_family_policy: Some("SingleStack".into()),
            ..Default::default()
        }
    }

    /// So many instances that the cloud knows, from suite.yaml, else from ListInstances, else made by a hook. Skips the check where there are fewer.
    pub(crate) async fn instances(&self, count: usize) -> Verdict<Vec<KnownInstance>> {
        let mut known = self.config().instances.clone();
        let listing = self.capabilities().instances.is_some_and(|of| of.listing);
        if known.len() < count && listing {
            let request = pb::ListInstancesRequest {
                facets: vec![InstanceFacet::Metadata.into(), InstanceFacet::Power.into()],
                ..Default::default()
            };
            let listed = self.session().await?.list(request).await.items()?;
            known = listed
                .into_iter()
                .filter(|instance| instance.provider_id.is_some())
                .map(|instance| KnownInstance {
                    name: self.name("node"),
                    provider_id: instance.provider_id,
                    state: None,
                })
                .collect();
        }
        while known.len() < count && self.has_hook(Hook::InstanceAdd) {
            known.push(self.add_instance("node").await?);
        }
        if known.len() < count {
            return Err(Stop::not_set_up(format!(
                "it needs {count} instances that the cloud knows; name them in suite.yaml under `instances`, or give the hook `instance-add`"
            )));
        }
        known.truncate(count);
        Ok(known)
    }

    /// Makes an instance by the hook; it goes with the check.
    pub(crate) async fn add_instance(&self, word: &str) -> Verdict<KnownInstance> {
        let name = self.name(word);
        let provider_id = self.hook(Hook::InstanceAdd, &[("NAME", &name)]).await?;
        self.shared.ledger.note(Thing::Instance {
            name: name.clone(),
            provider_id: provider_id.clone(),
        });
        Ok(KnownInstance {
            name,
            provider_id: Some(provider_id),
            state: None,
        })
    }

    /// Removes, stops or starts an instance that a hook made.
    pub(crate) async fn change_instance(&self, hook: Hook, instance: &KnownInstance) -> Verdict {
        let provider_id = instance.provider_id.as_deref().unwrap_or_default();
        let variables = [
            ("NAME", instance.name.as_str()),
            ("PROVIDER_ID", provider_id),
        ];
        self.hook(hook, &variables).await.map(|_| ())
    }

    /// Makes a load balancer that is marked for nobody, by the hook; it goes with the check. Answers its handle.
    pub(crate) async fn unmarked_load_balancer(&self, native_name: &str) -> Verdict<String> {
        let handle = self
            .hook(Hook::LoadBalancerUnmarked, &[("NAME", native_name)])
            .await?;
        self.shared.ledger.note(Thing::UnmarkedLoadBalancer {
            handle: handle.clone(),
        });
        Ok(handle)
    }

    /// Makes a route that is marked for nobody, by the hook; it goes with the check.
    pub(crate) async fn unmarked_route(
        &self,
        name: &str,
        cidr: &str,
        provider_id: &str,
    ) -> Verdict {
        let variables = [("NAME", name), ("CIDR", cidr), ("PROVIDER_ID", provider_id)];
        self.hook(Hook::RouteUnmarked, &variables).await?;
        self.shared.ledger.note(Thing::UnmarkedRoute {
            name: name.to_owned(),
            cidr: cidr.to_owned(),
        });
        Ok(())
    }

    /// Makes a route of this check's cluster whose target is gone, by the hook; it goes with the check.
    pub(crate) async fn blackhole_route(&self, name: &str, cidr: &str) -> Verdict {
        let cluster = self.cluster();
        let variables = [
            ("NAME", name),
            ("CIDR", cidr),
            ("OWNER_ID", &cluster.owner_id),
        ];
        self.hook(Hook::RouteBlackhole, &variables).await?;
        self.shared.ledger.note(Thing::Route {
            cluster,
            cidr: cidr.to_owned(),
        });
        Ok(())
    }

    /// Notes what lacks of this, so that the check is not passed without it; whether all of it is there.
    pub(crate) fn sees(&self, needs: &[Need]) -> bool {
        let lack = self.lack(needs);
        let sees = lack.is_none();
        if let Some(lack) = lack {
            self.unseen(Stop::Skipped(lack));
        }
        sees
    }

    /// What lacks of what a check needs.
    pub(crate) fn lack(&self, needs: &[Need]) -> Option<Skipped> {
        let offered = self.capabilities();
        let instances = offered.instances.as_ref();
        let load_balancers = offered.load_balancers.as_ref();
        needs.iter().find_map(|need| {
            let (there, what) = match need {
                Need::Instances => (instances.is_some(), "instances"),
                Need::InstanceListing => {
                    (instances.is_some_and(|of| of.listing), "instances.listing")
                }
                Need::PowerState => (
                    instances.is_some_and(|of| of.power_state),
                    "instances.power_state",
                ),
                Need::Zones => (offered.zones.is_some(), "zones"),
                Need::LoadBalancers => (load_balancers.is_some(), "load_balancers"),
                Need::LoadBalancerListing => (
                    load_balancers.is_some_and(|of| of.listing),
                    "load_balancers.listing",
                ),
                Need::InSync => (
                    load_balancers.is_some_and(|of| of.in_sync),
                    "load_balancers.in_sync",
                ),
                Need::Routes => (offered.routes.is_some(), "routes"),
                Need::Clusters => (offered.clusters.is_some(), "clusters"),
                Need::Volumes => (offered.volumes.is_some(), "volumes"),
                Need::Changes => (offered.changes.is_some(), "changes"),
                Need::Hook(hook) if !self.has_hook(*hook) => {
                    return skipped(Stop::not_set_up(format!(
                        "suite.yaml has no hook `{}`",
                        hook.key()
                    )));
                }
                Need::Command if !self.target().is_ours() => {
                    return skipped(Stop::not_set_up(
                        "the provider is not started by the suite (--command)",
                    ));
                }
                Need::Hook(_) | Need::Command => return None,
            };
            if there {
                return None;
            }
            skipped(Stop::not_offered(format!(
                "the provider does not offer Capabilities.{what}"
            )))
        })
    }

    /// Asks again and again until there is something, at most this long.
    pub(crate) async fn eventually<T, F, L>(&self, patience: Duration, mut look: F) -> Option<T>
    where
        F: FnMut() -> L,
        L: Future<Output = Option<T>>,
    {
        let until = Instant::now() + patience;
        loop {
            if let Some(seen) = look().await {
                return Some(seen);
            }
            if Instant::now() > until {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

fn skipped(stop: Stop) -> Option<Skipped> {
    match stop {
        Stop::Skipped(skipped) => Some(skipped),
        Stop::Failed(_) | Stop::Warned(_) => None,
    }
}

/// A number that differs between runs; which one does not matter.
fn crc(text: &str) -> u32 {
    text.bytes().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

/// A target set.
pub(crate) fn targets(nodes: Vec<pb::NodeView>) -> pb::TargetSet {
    pb::TargetSet {
        set: Some(pb::target_set::Set::Inline(pb::TargetList { nodes })),
    }
}
