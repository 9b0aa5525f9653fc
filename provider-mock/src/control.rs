//! The control service: one command as JSON, one result as JSON. `ctl` speaks it; so can any test in any language.

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
    /// Puts this instance in the place of the one with its name.
    InstanceSet {
        /// As in the YAML file.
        instance: Instance,
    },
    /// Removes one.
    InstanceRemove {
        /// Its name or ID.
        name: String,
    },
    /// Says what the cloud tells of one.
    InstancePower {
        /// Its name or ID.
        name: String,
        /// What.
        power: Power,
    },
    /// Gives one another name.
    InstanceRename {
        /// Its name or ID.
        name: String,
        /// The new name.
        to: String,
    },
    /// Shows all load balancers.
    LoadBalancerList,
    /// Who the load balancers of this handle are marked for.
    LoadBalancerMarks {
        /// The handle.
        handle: String,
    },
    /// Plants one.
    LoadBalancerAdd {
        /// As in the YAML file.
        load_balancer: LoadBalancer,
    },
    /// Removes one behind the controller's back.
    LoadBalancerRemove {
        /// Its handle.
        handle: String,
    },
    /// Shows all routes.
    RouteList,
    /// Plants one.
    RouteAdd {
        /// As in the YAML file.
        route: Route,
    },
    /// Removes one behind the controller's back.
    RouteRemove {
        /// Its name.
        name: String,
    },
    /// Says how a Service is treated.
    ServiceSet {
        /// `namespace/name`.
        service: String,
        /// How.
        behaviour: ServiceBehaviour,
    },
    /// Says whether a Node can be attached to load balancers.
    TargetErrorSet {
        /// Its name.
        node: String,
        /// Why it cannot; it can where there is none.
        failure: Option<FailureSpec>,
    },
    /// Sets a fault.
    FaultSet {
        /// As in the YAML file.
        fault: Fault,
    },
    /// Clears one fault, or all.
    FaultClear {
        /// Its number; all where there is none.
        id: Option<u64>,
    },
    /// Shows the faults that are set.
    FaultList,
    /// Says how long an RPC takes.
    LatencySet {
        /// Its name; `*` for all.
        rpc: String,
        /// How long.
        latency: HumanDuration,
    },
    /// Says how long load balancers take.
    ProvisioningSet {
        /// To be made.
        load_balancer: HumanDuration,
        /// To go.
        deletion: HumanDuration,
    },
    /// Says what Probe answers.
    HealthSet {
        /// `starting`, `ready`, `degraded` or `broken`.
        state: HealthWord,
        /// Why.
        #[serde(default)]
        message: String,
    },
    /// Every operation of the cloud fails with this code, until it is said that none does.
    CloudFail {
        /// For example `THROTTLED`; nothing fails where there is none.
        code: Option<String>,
    },
    /// Every operation of the cloud takes this long first.
    CloudSlow {
        /// Milliseconds; 0 heals.
        ms: u64,
    },
    /// Shows how many writes ever reached the cloud.
    CloudWrites,
    /// Says which scope Initialize answers.
    ScopeSet {
        /// The scope.
        scope: String,
    },
    /// Answers NOT_INITIALIZED until the next Initialize.
    ForgetInitialize,
    /// Tells watching controllers to look at everything again.
    Resync,
    /// Shows how often each RPC was called, and the last calls.
    Calls {
        /// Only of this RPC.
        rpc: Option<String>,
        /// At most so many calls of each RPC.
        last: usize,
    },
    /// Forgets all calls and writes.
    CallsReset,
    /// Goes back to the YAML file.
    Reset,
}

/// How the provider is.
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

/// What [`Command::Calls`] shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// How many calls of each RPC have ended.
    pub counts: BTreeMap<String, u64>,
    /// How many of them may change the cloud.
    pub mutating_calls: u64,
    /// How many calls of each RPC are not answered yet.
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
    /// Runs a command; answers what it shows.
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
                        "no fault has the number {id}; `ctl fault list` shows those that are set"
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

    /// Changes an instance. Its identity stays unless it is stated.
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

    /// Counts, writes and, for each RPC (or only that one), at most so many of the last calls.
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
    // All that is shown has plain fields and text keys: it cannot fail, and a shown error is better than a panic.
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
