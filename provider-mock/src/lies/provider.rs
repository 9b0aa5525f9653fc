//! The provider with its twists around it. A twist changes the input, the marks, the answer or the
//! effect of an honest provider.

mod instances;
mod load_balancers;
mod marks;
mod routes;

use std::sync::Arc;

use provider_sdk::{
    Answers, Call, Changes, Clusters, Failure, Health, Hints, InitializeRequest, Initialized,
    Instances, LoadBalancers, Node, NodeFieldGroup, Provider, ProviderInfo, Routes, Volumes, Zone,
    Zones, async_trait,
};

use self::marks::TwistedMarks;
use super::Twist;
use crate::cloud::Cloud;
use crate::instances::Found;
use crate::provider::MockProvider;

/// A provider of this cloud with the active twists.
#[derive(Debug, Clone)]
pub(crate) struct Twisted {
    honest: MockProvider,
    cloud: Cloud,
}

impl Twisted {
    pub(crate) fn new(cloud: Cloud) -> Self {
        let marks = Arc::new(TwistedMarks::new(cloud.clone()));
        Self {
            honest: MockProvider::new(cloud.clone()).marking(marks),
            cloud,
        }
    }

    fn is_honest(&self) -> bool {
        self.cloud.twists().none()
    }

    fn has(&self, twist: Twist) -> bool {
        self.cloud.twisted(twist)
    }

    /// The Node's place. With the twist `ZonesMadeUp`, it is invented if no place is known and a
    /// lookup of the Node would not find an instance.
    fn place(&self, node: &Node, zone: Zone) -> Zone {
        if zone != Zone::default() || !self.has(Twist::ZonesMadeUp) {
            return zone;
        }
        let state = self.cloud.state();
        let prefixes = &state.settings.provider.provider_id_prefixes;
        let instances = &state.objects.instances;
        match instances.look_up(&node.name, node.provider_id.as_deref(), prefixes) {
            Found::Instance(_) => zone,
            Found::Absent | Found::Pending | Found::Unmanaged => {
                self.cloud.count_lie();
                Zone {
                    zone: Some("zone-a".into()),
                    region: Some("region-1".into()),
                }
            }
        }
    }
}

#[async_trait]
impl Provider for Twisted {
    fn info(&self) -> ProviderInfo {
        let mut info = self.honest.info();
        let groups = &mut info.node_projection.field_groups;
        if self.has(Twist::ReadyAbsent) && !groups.contains(&NodeFieldGroup::Readiness) {
            groups.push(NodeFieldGroup::Readiness);
        }
        info
    }

    async fn initialize(
        &self,
        call: &Call,
        request: &InitializeRequest,
    ) -> Result<Initialized, Failure> {
        if self.has(Twist::InitializeAsksNothing) {
            if self.cloud.weather().failure().is_some() {
                self.cloud.count_lie();
            }
            return Ok(self.honest.initialized());
        }
        self.honest.initialize(call, request).await
    }

    fn health(&self) -> Health {
        let lasting_trouble = self.cloud.mischief().lasting_trouble.clone();
        let health = self.honest.health();
        if let Some(trouble) = lasting_trouble {
            let twisted = Health::degraded(trouble);
            if twisted != health {
                self.cloud.count_lie();
            }
            return twisted;
        }
        match self.cloud.weather().failure() {
            Some(failure) if health == Health::ready() && self.has(Twist::RefusalIsTrouble) => {
                self.cloud.count_lie();
                Health::degraded(failure.message())
            }
            _ => health,
        }
    }

    fn instances(&self) -> Option<&dyn Instances> {
        let offered = self.honest.instances();
        offered.map(|_| self as &dyn Instances)
    }

    fn zones(&self) -> Option<&dyn Zones> {
        let offered = self.honest.zones();
        offered.map(|_| self as &dyn Zones)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        let offered = self.honest.load_balancers();
        offered.map(|_| self as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        let offered = self.honest.routes();
        offered.map(|_| self as &dyn Routes)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        self.honest.clusters()
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        self.honest.volumes()
    }

    fn changes(&self) -> Option<&dyn Changes> {
        let offered = self.honest.changes();
        offered.map(|_| self as &dyn Changes)
    }
}

#[async_trait]
impl Zones for Twisted {
    async fn zone(&self, call: &Call, node: &Node) -> Result<Zone, Failure> {
        let zone = self.honest.zone(call, node).await?;
        Ok(self.place(node, zone))
    }

    async fn zone_batch(&self, call: &Call, nodes: &[Node]) -> Result<Answers<Zone>, Failure> {
        if self.is_honest() {
            return self.honest.zone_batch(call, nodes).await;
        }
        let honest = self.honest.zone_batch(call, nodes).await?;
        let twisted = nodes.iter().filter_map(|node| {
            let answer = honest.get(&node.name)?.clone();
            let answer = answer.map(|zone| self.place(node, zone));
            Some((node.name.clone(), answer))
        });
        Ok(twisted.collect())
    }
}

#[async_trait]
impl Changes for Twisted {
    async fn watch(&self, call: &Call, resume_token: &str, hints: &Hints) -> Result<(), Failure> {
        let number = self.cloud.hint_number(resume_token);
        let ignored = number.is_none() && self.has(Twist::TokenIgnored);
        if ignored && !resume_token.is_empty() {
            self.cloud.count_lie();
        }
        let resume_token = if ignored { "" } else { resume_token };
        let resumes = number.is_some() || resume_token.is_empty();
        if resumes && self.has(Twist::BookmarkMissing) {
            self.cloud.count_lie();
            let latest = *self.cloud.watch_hints().borrow();
            return self.honest.follow(number.unwrap_or(latest), hints).await;
        }
        self.honest.watch(call, resume_token, hints).await
    }
}

#[cfg(test)]
mod tests {
    use provider_sdk::{Cluster, GetLoadBalancer, Service};

    use super::*;
    use crate::{Fixture, LoadBalancer, Mark, Route};

    /// A provider with this lie, its cloud, and a call.
    fn liar(lie: &str) -> (Twisted, Cloud, Call) {
        let cloud = Cloud::new(Fixture::default()).unwrap();
        cloud.tell(lie).unwrap();
        let call = Call::for_test(Cluster::new("one", "owner-1"));
        (Twisted::new(cloud.clone()), cloud, call)
    }

    #[tokio::test]
    async fn a_list_counts_as_a_lie_only_if_it_differs_from_the_honest_one() {
        let (provider, cloud, call) = liar("unmarked-routes-ours");
        Routes::list(&provider, &call).await.unwrap();
        assert_eq!(cloud.lied(), 0);
        let unmarked = Route::new("unmarked", "10.244.0.0/24");
        cloud.plant_route(unmarked).unwrap();
        Routes::list(&provider, &call).await.unwrap();
        assert_eq!(cloud.lied(), 1);
        cloud.reset_calls();
        assert_eq!(cloud.lied(), 0);
    }

    #[tokio::test]
    async fn a_mark_counts_as_a_lie_only_if_the_honest_provider_would_treat_it_otherwise() {
        for lie in ["forgets-previous-owners", "needs-the-handle", "cuts-marks"] {
            let (provider, cloud, call) = liar(lie);
            let mut request = GetLoadBalancer::default();
            request.service = Service::new("default", "web", "uid-web");
            let get = async |owner_id: &str| {
                let mark = Mark {
                    owner_id: owner_id.into(),
                    namespace: "default".into(),
                    name: "web".into(),
                    uid: "uid-web".into(),
                };
                let marked = LoadBalancer {
                    owner: Some(mark),
                    ..LoadBalancer::default()
                };
                cloud.plant_load_balancer(marked).unwrap();
                provider.get(&call, &request).await.unwrap();
                cloud.lied() > 0
            };
            assert!(!get("owner-2").await, "{lie}");
            assert_eq!(get("owner-1").await, lie == "needs-the-handle", "{lie}");
        }
    }
}
