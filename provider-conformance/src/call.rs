//! One call: the request and the answer.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use cloud_provider_api::v1alpha1::{self as pb, FailureCode};
use prost::Message;
use tonic::{Code, Status};

use super::check::{Stop, Verdict, cut};

/// The suite's deadlines: this one, `MINUTE` and `LONG`. Each is the contract's default for its
/// RPCs, or longer.
pub(crate) const SHORT: Duration = Duration::from_secs(10);
/// A call may end this much before its deadline, because `grpc-timeout` has whole units.
const ROUNDING: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_mins(1);
const LONG: Duration = Duration::from_mins(5);

/// A request with one answer.
pub(crate) trait Rpc: Message + Clone + Debug + Default + 'static {
    /// For example `LookupInstances`.
    const NAME: &'static str;
    const PATH: &'static str;
    const DEADLINE: Duration;
    type Response: Answer;
    fn cluster(&self) -> Option<&pb::ClusterRef>;
    fn set_cluster(&mut self, cluster: Option<pb::ClusterRef>);
}

/// A request of a listing, with a stream as its answer.
pub(crate) trait Listing: Message + Clone + Debug + Default + 'static {
    const NAME: &'static str;
    const PATH: &'static str;
    type Response: ListingPart;
    fn cluster(&self) -> Option<&pb::ClusterRef>;
    fn set_cluster(&mut self, cluster: Option<pb::ClusterRef>);
}

/// The common parts of answers.
pub(crate) trait Answer: Message + Clone + Debug + Default + 'static {
    /// The failure of the whole call.
    fn failed(&self) -> Option<&pb::Failure>;
    /// Whether the oneof of the answer is set. True if the answer has no oneof.
    fn says_something(&self) -> bool;
}

/// The common parts of listings' messages.
pub(crate) trait ListingPart: Message + Clone + Debug + Default + 'static {
    type Item: Clone + Debug + PartialEq + Send + Sync + 'static;
    fn part(self) -> Part<Self::Item>;
}

pub(crate) enum Part<T> {
    Failed(pb::Failure),
    Items(Vec<T>),
    End(u64),
    Unset,
}

/// A call that has ended.
pub(crate) struct Exchange<T> {
    pub(crate) rpc: &'static str,
    pub(crate) sent: Arc<dyn Debug + Send + Sync>,
    pub(crate) came: Result<T, Status>,
    pub(crate) took: Duration,
}

impl<T: Debug> Exchange<T> {
    /// The answer. A gRPC status other than OK violates CORE-4.
    pub(crate) fn answer(&self) -> Verdict<&T> {
        match &self.came {
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.broke(
                "CORE-4",
                "an answer with gRPC status OK: the outcome is in the body",
            )),
        }
    }

    /// Fails with this rule if the condition does not hold.
    pub(crate) fn must(&self, holds: bool, rule: &str, expected: impl Display) -> Verdict {
        if holds {
            Ok(())
        } else {
            Err(self.broke(rule, expected))
        }
    }

    /// Warns if the condition does not hold, for a rule with SHOULD. The warning ends the check:
    /// later steps do not run.
    pub(crate) fn should(&self, holds: bool, rule: &str, expected: impl Display) -> Verdict {
        self.must(holds, rule, expected).map_err(Stop::softened)
    }

    /// The violation of this rule by the answer.
    pub(crate) fn broke(&self, rule: &str, expected: impl Display) -> Stop {
        let came = match &self.came {
            Ok(answer) => cut(&format_args!("{answer:?}")),
            Err(status) => shown(status),
        };
        let mut stop = Stop::failed(rule, self.sent(), expected, came);
        if let Stop::Failed(failed) = &mut stop {
            failed.unanswered = self.is_unanswered().then_some(self.rpc);
        }
        stop
    }

    /// Whether the call ended without an answer after at least [`SHORT`]. If a check sets a shorter
    /// deadline, a missing answer proves nothing.
    fn is_unanswered(&self) -> bool {
        let late =
            |status: &Status| matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
        self.took + ROUNDING >= SHORT && self.came.as_ref().is_err_and(late)
    }

    /// The request, as text for people.
    pub(crate) fn sent(&self) -> String {
        cut(&format_args!("{}: {:?}", self.rpc, self.sent))
    }
}

impl<T: Answer> Exchange<T> {
    /// The answer. Fails with this rule if the answer is a failure of the whole call, or has an
    /// unset oneof.
    pub(crate) fn success(&self, rule: &str) -> Verdict<&T> {
        let answer = self.answer()?;
        self.must(
            answer.failed().is_none() && answer.says_something(),
            rule,
            "a successful answer, not `failed` and not an unset oneof",
        )?;
        Ok(answer)
    }

    /// The failure in the answer. Fails with this rule if there is none, or if it has another code.
    pub(crate) fn failure(&self, rule: &str, codes: &[FailureCode]) -> Verdict<&pb::Failure> {
        let names: Vec<_> = codes.iter().map(|code| short_code(*code)).collect();
        let expected = format!("failed with {}", names.join(" or "));
        match self.answer()?.failed() {
            Some(failure) if codes.contains(&failure.code()) => Ok(failure),
            _ => Err(self.broke(rule, expected)),
        }
    }
}

impl<T: Answer> Exchange<T> {
    /// The end of a check because of a failure that came before the check could test its subject.
    pub(crate) fn refused(
        &self,
        failure: &pb::Failure,
        rule: &str,
        expected: impl Display,
    ) -> Stop {
        let mut stop = self.broke(rule, expected);
        if let Stop::Failed(failed) = &mut stop {
            let code = short_code(failure.code());
            failed.came = cut(&format_args!(
                "{} failed with {code} ({}): {}",
                self.rpc, failure.reason, failure.message
            ));
            // Prefers the reason, because a message may name the object.
            let what = match &*failure.reason {
                "" => &failure.message,
                reason => reason,
            };
            failed.cause = Some(cut(&format_args!("{}: {code}: {what}", self.rpc)));
        }
        stop
    }
}

/// For example `THROTTLED`.
pub(crate) fn short_code(code: FailureCode) -> &'static str {
    code.as_str_name().trim_start_matches("FAILURE_CODE_")
}

pub(crate) fn shown(status: &Status) -> String {
    format!("gRPC status {:?}: {}", status.code(), status.message())
}

/// A stream that has ended or was abandoned.
#[derive(Debug, Clone)]
pub(crate) struct Listed<P> {
    pub(crate) parts: Vec<P>,
    /// How the stream ended; `None` for status OK.
    pub(crate) status: Option<(Code, String)>,
}

impl<P: ListingPart> Exchange<Listed<P>> {
    /// The items of a complete listing: no failure, status OK, `end` as the last message, and the
    /// right total (CORE-16).
    pub(crate) fn items(&self) -> Verdict<Vec<P::Item>> {
        let listed = self.answer()?;
        self.must(
            listed.status.is_none(),
            "CORE-4",
            "a stream that ends with gRPC status OK",
        )?;
        let mut items = Vec::new();
        let mut end = None;
        for part in &listed.parts {
            self.must(
                end.is_none(),
                "CORE-16",
                "`end` is the last message of a listing",
            )?;
            match part.clone().part() {
                Part::Items(more) => items.extend(more),
                Part::End(total) => end = Some(total),
                Part::Failed(_) => {
                    return Err(self.broke("CORE-16", "a complete listing, not `failed`"));
                }
                Part::Unset => return Err(self.broke("CORE-16", "a part that says what it is")),
            }
        }
        self.must(
            end == Some(items.len() as u64),
            "CORE-16",
            format_args!(
                "`end` with the total {}, the number of items that were sent",
                items.len()
            ),
        )?;
        Ok(items)
    }

    /// The failure at the end of the listing. Nothing may follow it.
    pub(crate) fn failure(&self, rule: &str, codes: &[FailureCode]) -> Verdict<pb::Failure> {
        let names: Vec<_> = codes.iter().map(|code| short_code(*code)).collect();
        let expected = format!(
            "`failed` with {} as the last message, then status OK",
            names.join(" or ")
        );
        let listed = self.answer()?;
        self.must(listed.status.is_none(), "CORE-4", &expected)?;
        match listed.parts.last().cloned().map(ListingPart::part) {
            Some(Part::Failed(failure)) if codes.contains(&failure.code()) => Ok(failure),
            _ => Err(self.broke(rule, expected)),
        }
    }
}

macro_rules! rpcs {
    ($($service:literal / $name:ident($request:ident) -> $response:ident, $deadline:expr, $cluster:tt, failed |$whole:pat_param| $failed:expr, says |$answer:pat_param| $says:expr;)+) => {
        $(
            impl Rpc for pb::$request {
                const NAME: &'static str = stringify!($name);
                const PATH: &'static str = concat!("/cloudprovider.v1alpha1.", $service, "/", stringify!($name));
                const DEADLINE: Duration = $deadline;
                type Response = pb::$response;
                rpcs!(@cluster $cluster);
            }
            impl Answer for pb::$response {
                fn failed(&self) -> Option<&pb::Failure> {
                    let $whole = self;
                    $failed
                }
                fn says_something(&self) -> bool {
                    let $answer = self;
                    $says
                }
            }
        )+
    };
    (@cluster yes) => {
        fn cluster(&self) -> Option<&pb::ClusterRef> {
            self.cluster.as_ref()
        }
        fn set_cluster(&mut self, cluster: Option<pb::ClusterRef>) {
            self.cluster = cluster;
        }
    };
    (@cluster no) => {
        fn cluster(&self) -> Option<&pb::ClusterRef> {
            None
        }
        fn set_cluster(&mut self, _: Option<pb::ClusterRef>) {}
    };
}

macro_rules! failed_of {
    ($answer:expr, $outcome:path) => {
        match &$answer.outcome {
            Some($outcome(failure)) => Some(failure),
            _ => None,
        }
    };
}

rpcs! {
    "ProviderService" / GetProviderInfo(GetProviderInfoRequest) -> GetProviderInfoResponse, SHORT, no, failed |_| None, says |_| true;
    "ProviderService" / Initialize(InitializeRequest) -> InitializeResponse, MINUTE, yes, failed |a| failed_of!(a, pb::initialize_response::Outcome::Failed), says |a| a.outcome.is_some();
    "ProviderService" / Probe(ProbeRequest) -> ProbeResponse, SHORT, no, failed |_| None, says |_| true;
    "InstanceService" / LookupInstances(LookupInstancesRequest) -> LookupInstancesResponse, MINUTE, yes, failed |a| a.failed.as_ref(), says |_| true;
    "ZoneService" / LookupZones(LookupZonesRequest) -> LookupZonesResponse, MINUTE, yes, failed |a| a.failed.as_ref(), says |_| true;
    "LoadBalancerService" / GetLoadBalancer(GetLoadBalancerRequest) -> GetLoadBalancerResponse, LONG, yes, failed |a| failed_of!(a, pb::get_load_balancer_response::Outcome::Failed), says |a| a.outcome.is_some();
    "LoadBalancerService" / EnsureLoadBalancer(EnsureLoadBalancerRequest) -> EnsureLoadBalancerResponse, LONG, yes, failed |a| failed_of!(a, pb::ensure_load_balancer_response::Outcome::Failed), says |a| a.outcome.is_some();
    "LoadBalancerService" / UpdateLoadBalancer(UpdateLoadBalancerRequest) -> UpdateLoadBalancerResponse, LONG, yes, failed |a| failed_of!(a, pb::update_load_balancer_response::Outcome::Failed), says |a| a.outcome.is_some();
    "LoadBalancerService" / DeleteLoadBalancer(DeleteLoadBalancerRequest) -> DeleteLoadBalancerResponse, LONG, yes, failed |a| failed_of!(a, pb::delete_load_balancer_response::Outcome::Failed), says |a| a.outcome.is_some();
    "RouteService" / CreateRoutes(CreateRoutesRequest) -> CreateRoutesResponse, LONG, yes, failed |a| a.failed.as_ref(), says |_| true;
    "RouteService" / DeleteRoutes(DeleteRoutesRequest) -> DeleteRoutesResponse, LONG, yes, failed |a| a.failed.as_ref(), says |_| true;
    "ClusterService" / GetControlPlaneAddress(GetControlPlaneAddressRequest) -> GetControlPlaneAddressResponse, MINUTE, yes, failed |a| failed_of!(a, pb::get_control_plane_address_response::Outcome::Failed), says |a| a.outcome.is_some();
    "VolumeService" / GetVolumeLabels(GetVolumeLabelsRequest) -> GetVolumeLabelsResponse, MINUTE, yes, failed |a| failed_of!(a, pb::get_volume_labels_response::Outcome::Failed), says |a| a.outcome.is_some();
}

macro_rules! listings {
    ($($service:literal / $name:ident($request:ident) -> $response:ident, $part:ident, $item:ty, |$some:ident| $variant:path => $items:expr;)+) => {$(
        impl Listing for pb::$request {
            const NAME: &'static str = stringify!($name);
            const PATH: &'static str = concat!("/cloudprovider.v1alpha1.", $service, "/", stringify!($name));
            type Response = pb::$response;
            rpcs!(@cluster yes);
        }
        impl ListingPart for pb::$response {
            type Item = $item;
            fn part(self) -> Part<$item> {
                match self.part {
                    Some(pb::$part::Part::Failed(failure)) => Part::Failed(failure),
                    Some(pb::$part::Part::End(end)) => Part::End(end.total),
                    Some($variant($some)) => Part::Items($items),
                    None => Part::Unset,
                }
            }
        }
    )+};
}

listings! {
    "InstanceService" / ListInstances(ListInstancesRequest) -> ListInstancesResponse, list_instances_response, pb::Instance, |some| pb::list_instances_response::Part::Instances => some.instances;
    "LoadBalancerService" / ListLoadBalancers(ListLoadBalancersRequest) -> ListLoadBalancersResponse, list_load_balancers_response, pb::ListedLoadBalancer, |one| pb::list_load_balancers_response::Part::LoadBalancer => vec![one];
    "RouteService" / ListRoutes(ListRoutesRequest) -> ListRoutesResponse, list_routes_response, pb::Route, |some| pb::list_routes_response::Part::Routes => some.routes;
    "ClusterService" / ListClusters(ListClustersRequest) -> ListClustersResponse, list_clusters_response, String, |some| pb::list_clusters_response::Part::Clusters => some.names;
}
