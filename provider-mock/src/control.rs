//! The control service: a command as JSON, and a result as JSON. `ctl` uses it, and so can tests in
//! any language.

use std::collections::BTreeMap;

use provider_sdk::Health;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use crate::calls::CallEntry;
use crate::cloud::Cloud;
use crate::duration::HumanDuration;
use crate::error::CloudError;
use crate::faults::{Fault, RPCS};
use crate::fixture::{FailureSpec, ServiceBehaviour, failure_code};
use crate::instances::{Instance, Power};
use crate::load_balancers::LoadBalancer;
use crate::routes::Route;
use crate::weather::Weather;

/// The generated control service, `mock.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod pb {
    tonic::include_proto!("mock.v1");
}

/// A command to a cloud. As JSON: an object with the key `command` beside the fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Shows all instances.
    InstanceList,
    /// Adds one.
    InstanceAdd {
        /// As in the YAML file.
        instance: Instance,
    },
    /// Replaces the instance whose name, or else whose ID, is the `name` given here.
    InstanceSet {
        /// As in the YAML file.
        instance: Instance,
    },
    /// Removes one.
    InstanceRemove {
        /// Its name or ID.
        name: String,
    },
    /// Sets an instance's power state.
    InstancePower {
        /// Its name or ID.
        name: String,
        /// The power state.
        power: Power,
    },
    /// Renames an instance.
    InstanceRename {
        /// Its name or ID.
        name: String,
        /// The new name.
        to: String,
    },
    /// Shows all load balancers.
    LoadBalancerList,
    /// Shows the marks of the load balancers with this handle.
    LoadBalancerMarks {
        /// The handle.
        handle: String,
    },
    /// Adds a load balancer.
    LoadBalancerAdd {
        /// As in the YAML file.
        load_balancer: LoadBalancer,
    },
    /// Removes a load balancer directly from the cloud.
    LoadBalancerRemove {
        /// Its handle.
        handle: String,
    },
    /// Shows all routes.
    RouteList,
    /// Adds a route.
    RouteAdd {
        /// As in the YAML file.
        route: Route,
    },
    /// Removes a route directly from the cloud.
    RouteRemove {
        /// Its name.
        name: String,
    },
    /// Sets the treatment of a Service.
    ServiceSet {
        /// `namespace/name`.
        service: String,
        /// The treatment.
        behaviour: ServiceBehaviour,
    },
    /// Sets whether a Node can be attached to load balancers.
    TargetErrorSet {
        /// Its name.
        node: String,
        /// The failure. Absent: it can be attached.
        failure: Option<FailureSpec>,
    },
    /// Sets a fault.
    FaultSet {
        /// As in the YAML file.
        fault: Fault,
    },
    /// Clears one fault, or all.
    FaultClear {
        /// Its number. Absent: all.
        id: Option<u64>,
    },
    /// Shows the faults that are set.
    FaultList,
    /// Sets the latency of an RPC.
    LatencySet {
        /// Its name; `*` for all.
        rpc: String,
        /// The latency.
        latency: HumanDuration,
    },
    /// Sets how long the creation and the deletion of a load balancer take.
    ProvisioningSet {
        /// The time of a creation.
        load_balancer: HumanDuration,
        /// The time of a deletion.
        deletion: HumanDuration,
    },
    /// Sets the answer of Probe.
    HealthSet {
        /// `starting`, `ready`, `degraded` or `broken`.
        state: HealthWord,
        /// The reason.
        #[serde(default)]
        message: String,
    },
    /// Makes every operation of the cloud fail with this code.
    CloudFail {
        /// For example `THROTTLED`. Absent: nothing fails.
        code: Option<String>,
    },
    /// Delays every operation of the cloud.
    CloudSlow {
        /// Milliseconds; 0 ends the delay.
        ms: u64,
    },
    /// Shows how many writes ever reached the cloud.
    CloudWrites,
    /// Sets the scope in Initialize's answers.
    ScopeSet {
        /// The scope.
        scope: String,
    },
    /// Answers NOT_INITIALIZED to requests with a cluster until the next Initialize.
    ForgetInitialize,
    /// Sends watching controllers the hint that any object may have changed.
    Resync,
    /// Shows how often each RPC was called, and the last calls.
    Calls {
        /// Only this RPC.
        rpc: Option<String>,
        /// The most calls of each RPC to show.
        last: usize,
    },
    /// Clears the log of calls and of writes, and the count of lies.
    CallsReset,
    /// Restores the cloud of the YAML file.
    Reset,
}

/// The provider's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // the contract's words
pub enum HealthWord {
    Starting,
    Ready,
    Degraded,
    Broken,
}

impl HealthWord {
    fn because(self, why: String) -> Health {
        match self {
            Self::Starting => Health::starting(why),
            Self::Ready => Health::ready(),
            Self::Degraded => Health::degraded(why),
            Self::Broken => Health::broken(why),
        }
    }
}

/// The result of [`Command::Calls`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// How many calls of each RPC have ended.
    pub counts: BTreeMap<String, u64>,
    /// How many of them were of mutating RPCs.
    pub mutating_calls: u64,
    /// How many calls of each RPC have not ended.
    #[serde(default)]
    pub in_flight: BTreeMap<String, u64>,
    /// How many times the provider wrote to the cloud.
    pub cloud_writes: u64,
    /// The last of these writes.
    pub writes: Vec<String>,
    /// The last calls, oldest first.
    pub calls: Vec<CallEntry>,
}

/// A fault that is set, with its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedFault {
    /// Its number.
    pub id: u64,
    /// The fault.
    pub fault: Fault,
}

impl Cloud {
    /// Runs a command. Returns its result.
    pub fn run(&self, command: Command) -> Result<Value, CloudError> {
        Ok(match command {
            Command::InstanceList => to_json(&self.instances()),
            Command::InstanceAdd { instance } => to_json(&self.add_instance(instance)?),
            Command::InstanceSet { instance } => to_json(&self.set_instance(instance)?),
            Command::InstanceRemove { name } => to_json(&self.remove_instance(&name)?),
            Command::InstancePower { name, power } => to_json(&self.set_power(&name, power)?),
            Command::InstanceRename { name, to } => to_json(&self.rename_instance(&name, &to)?),
            Command::LoadBalancerMarks { handle } => {
                let all = self.load_balancers();
                let of_it = all
                    .iter()
                    .filter(|lb| lb.handle == handle || lb.told_handle() == handle);
                let marks: Vec<_> = of_it.filter_map(|lb| lb.owner.clone()).collect();
                to_json(&marks)
            }
            Command::LoadBalancerList => to_json(&self.load_balancers()),
            Command::LoadBalancerAdd { load_balancer } => {
                json!({"handle": self.plant_load_balancer(load_balancer)?})
            }
            Command::LoadBalancerRemove { handle } => to_json(&self.remove_load_balancer(&handle)?),
            Command::RouteList => to_json(&self.routes()),
            Command::RouteAdd { route } => nothing(self.plant_route(route)?),
            Command::RouteRemove { name } => to_json(&self.remove_route(&name)?),
            Command::ServiceSet { service, behaviour } => {
                nothing(self.set_service(&service, behaviour)?)
            }
            Command::TargetErrorSet { node, failure } => {
                nothing(self.set_target_error(&node, failure)?)
            }
            Command::FaultSet { fault } => json!({"id": self.set_fault(fault)?}),
            Command::FaultClear { id: None } => {
                self.clear_faults();
                Value::Null
            }
            Command::FaultClear { id: Some(id) } => {
                if !self.clear_fault(id) {
                    return Err(CloudError::NotFound(format!(
                        "no fault has the number {id}; `ctl fault list` shows them"
                    )));
                }
                Value::Null
            }
            Command::FaultList => {
                let faults = self.faults().into_iter();
                let faults: Vec<_> = faults
                    .map(|(id, fault)| NumberedFault { id, fault })
                    .collect();
                to_json(&faults)
            }
            Command::LatencySet { rpc, latency } => nothing(self.set_latency(&rpc, latency.0)?),
            Command::ProvisioningSet {
                load_balancer,
                deletion,
            } => nothing(self.set_provisioning(load_balancer.0, deletion.0)?),
            Command::HealthSet { state, message } => {
                self.set_health(state.because(message));
                Value::Null
            }
            Command::CloudFail { code } => {
                let fail = code.map(|code| failure_code(&code)).transpose();
                let fail = fail.map_err(CloudError::Invalid)?;
                let weather = self.weather();
                self.set_weather(Weather { fail, ..weather });
                Value::Null
            }
            Command::CloudSlow { ms: slow_ms } => {
                let weather = self.weather();
                self.set_weather(Weather { slow_ms, ..weather });
                Value::Null
            }
            Command::CloudWrites => json!(self.all_writes()),
            Command::ScopeSet { scope } => nothing(self.set_cloud_scope(&scope)?),
            Command::ForgetInitialize => {
                self.forget_initialize();
                Value::Null
            }
            Command::Resync => {
                self.hint_resync();
                Value::Null
            }
            Command::Calls { rpc: Some(rpc), .. } if !RPCS.contains(&rpc.as_str()) => {
                return Err(CloudError::Invalid(format!(
                    "{rpc:?} is no RPC; write one of {}",
                    RPCS.join(", ")
                )));
            }
            Command::Calls { rpc, last } => to_json(&self.call_report(rpc.as_deref(), last)),
            Command::CallsReset => {
                self.reset_calls();
                Value::Null
            }
            Command::Reset => nothing(self.reset()?),
        })
    }

    /// Replaces an instance. Its ID and provider ID stay unless new ones are stated.
    fn set_instance(&self, instance: Instance) -> Result<Instance, CloudError> {
        let name = instance.name.clone();
        self.change_instance(&name, |present| {
            let (id, provider_id) = (present.id.clone(), present.provider_id.clone());
            *present = instance;
            if present.id.is_empty() {
                present.id = id;
            }
            if present.provider_id.is_empty() {
                present.provider_id = provider_id;
            }
        })
    }

    /// The counts, the writes, and the last calls of each RPC, or only of `rpc`: at most `last` of
    /// an RPC.
    pub fn call_report(&self, rpc: Option<&str>, last: usize) -> CallReport {
        let mut left: BTreeMap<String, usize> = BTreeMap::new();
        let mut calls: Vec<_> = self
            .calls(rpc)
            .into_iter()
            .rev()
            .filter(|call| {
                let seen = left.entry(call.rpc.clone()).or_default();
                *seen += 1;
                *seen <= last
            })
            .collect();
        calls.reverse();
        let in_flight = self.state().calls.in_flight.clone();
        CallReport {
            counts: self.call_counts(),
            mutating_calls: self.mutating_calls(),
            in_flight,
            cloud_writes: self.cloud_writes(),
            writes: self.writes(),
            calls,
        }
    }
}

fn nothing((): ()) -> Value {
    Value::Null
}

fn to_json(value: &impl Serialize) -> Value {
    // All values have plain fields and text keys, so this does not fail. An error in the result
    // would be better than a panic.
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}

/// The control service of a cloud.
pub(crate) struct Control {
    cloud: Cloud,
}

impl Control {
    pub(crate) fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }
}

#[tonic::async_trait]
impl pb::control_service_server::ControlService for Control {
    async fn run(
        &self,
        request: Request<pb::RunRequest>,
    ) -> Result<Response<pb::RunResponse>, Status> {
        let text = request.into_inner().command_json;
        let command = serde_json::from_str(&text)
            .map_err(|error| Status::invalid_argument(format!("{text} is no command: {error}")))?;
        let result = self.cloud.run(command).map_err(|error| match error {
            CloudError::NotFound(why) => Status::not_found(why),
            CloudError::AlreadyExists(why) => Status::already_exists(why),
            CloudError::Invalid(why) => Status::invalid_argument(why),
            CloudError::StateFile(why) => Status::internal(why),
        })?;
        Ok(Response::new(pb::RunResponse {
            result_json: result.to_string(),
        }))
    }
}
