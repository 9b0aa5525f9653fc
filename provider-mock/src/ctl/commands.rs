//! Converts the flags to commands.

use std::collections::BTreeMap;

use super::args::{Ctl, FaultVerb, InstanceArgs, InstanceVerb, LbVerb, RouteVerb};
use crate::control::Command;
use crate::faults::Fault;
use crate::fixture::{EventSpec, FailureSpec, ServiceBehaviour};
use crate::instances::{Instance, Power};
use crate::load_balancers::{LoadBalancer, Mark};
use crate::routes::Route;

/// How to show a result to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Instances,
    LoadBalancers,
    Routes,
    Faults,
    Calls,
    /// The provider ID of an instance.
    ProviderId,
    /// The handle of a load balancer.
    Handle,
    Nothing,
    Json,
}

impl InstanceArgs {
    pub(super) fn instance(self) -> Instance {
        let mut instance = Instance::new(self.name).power(self.power);
        instance.id = self.id;
        instance.provider_id = self.provider_id;
        instance.instance_type = self.instance_type;
        instance.zone = self.zone;
        instance.region = self.region;
        instance.addresses = self.address;
        instance.labels = self.label.into_iter().collect();
        instance
    }
}

impl Ctl {
    pub(crate) fn shows(&self) -> Shows {
        match self {
            Self::Instance(InstanceVerb::List) => Shows::Instances,
            Self::Instance(InstanceVerb::Add(_)) => Shows::ProviderId,
            Self::Lb(LbVerb::Add { .. }) => Shows::Handle,
            Self::Lb(LbVerb::List) => Shows::LoadBalancers,
            Self::Route(RouteVerb::List) => Shows::Routes,
            Self::Fault(FaultVerb::List) => Shows::Faults,
            Self::Calls { reset: false, .. } => Shows::Calls,
            _ => Shows::Json,
        }
    }

    pub(crate) fn command(self) -> Result<Command, String> {
        Ok(match self {
            Self::Instance(verb) => verb.command(),
            Self::Lb(verb) => verb.command()?,
            Self::Route(verb) => verb.command(),
            Self::Fault(verb) => verb.command(),
            Self::Latency { rpc, latency } => Command::LatencySet { rpc, latency },
            Self::Provisioning { load_balancer, deletion } => {
                Command::ProvisioningSet { load_balancer, deletion }
            }
            Self::Service {
                service,
                retain,
                handled_elsewhere,
                set_annotation,
                remove_annotation,
                event,
                warning,
            } => {
                let events = event.into_iter().map(|event| (false, event));
                let events = events.chain(warning.into_iter().map(|event| (true, event)));
                let events = events.map(|(warning, (reason, message))| EventSpec { warning, reason, message });
                Command::ServiceSet {
                    service,
                    behaviour: ServiceBehaviour {
                        retain,
                        handled_elsewhere,
                        set_annotations: set_annotation.into_iter().collect::<BTreeMap<_, _>>(),
                        remove_annotations: remove_annotation,
                        events: events.collect(),
                    },
                }
            }
            Self::TargetError { node, code, message } => Command::TargetErrorSet {
                node,
                failure: code.map(|code| FailureSpec { message, ..FailureSpec::new(code) }),
            },
            Self::Health { state, message } => Command::HealthSet { state, message },
            Self::Fail { code } => Command::CloudFail {
                code: code.0.map(|code| code.as_str().into()),
            },
            Self::Slow { ms } => Command::CloudSlow { ms },
            Self::Writes => Command::CloudWrites,
            Self::Scope { scope } => Command::ScopeSet { scope },
            Self::ForgetInitialize => Command::ForgetInitialize,
            Self::Resync => Command::Resync,
            Self::Calls { reset: true, .. } => Command::CallsReset,
            Self::Calls { rpc, last, .. } => Command::Calls { rpc, last },
            Self::Reset => Command::Reset,
            Self::Run { command } => serde_json::from_str(&command)
                .map_err(|error| format!("{command} is no command: {error}; write one such as {{\"command\":\"instance-list\"}}"))?,
        })
    }
}

impl InstanceVerb {
    fn command(self) -> Command {
        match self {
            Self::List => Command::InstanceList,
            Self::Add(instance) => Command::InstanceAdd {
                instance: instance.instance(),
            },
            Self::Set(instance) => Command::InstanceSet {
                instance: instance.instance(),
            },
            Self::Remove { name } => Command::InstanceRemove { name },
            Self::Stop { name } => Command::InstancePower {
                name,
                power: Power::Stopped,
            },
            Self::Start { name } => Command::InstancePower {
                name,
                power: Power::Running,
            },
            Self::Power { name, power } => Command::InstancePower { name, power },
            Self::Rename { name, to } => Command::InstanceRename { name, to },
        }
    }
}

impl LbVerb {
    fn command(self) -> Result<Command, String> {
        Ok(match self {
            Self::List => Command::LoadBalancerList,
            Self::Add {
                name,
                owner_id,
                uid,
                service,
                address,
                target,
                remnant,
            } => {
                let (namespace, service) = if service.is_empty() {
                    Default::default()
                } else {
                    let parts = service.split_once('/');
                    parts.ok_or_else(|| {
                        format!("--service {service:?} is no Service; write namespace/name")
                    })?
                };
                Command::LoadBalancerAdd {
                    load_balancer: LoadBalancer {
                        name,
                        owner: owner_id.map(|owner_id| Mark {
                            owner_id,
                            uid,
                            namespace: namespace.into(),
                            name: service.into(),
                        }),
                        addresses: address,
                        targets: target,
                        remnant,
                        ..LoadBalancer::default()
                    },
                }
            }
            Self::Marks { handle } => Command::LoadBalancerMarks { handle },
            Self::Remove { handle } => Command::LoadBalancerRemove { handle },
        })
    }
}

impl RouteVerb {
    fn command(self) -> Command {
        match self {
            Self::List => Command::RouteList,
            Self::Add {
                name,
                destination_cidr,
                node_name,
                provider_id,
                next_hop,
                gateway,
                owner_id,
            } => Command::RouteAdd {
                route: Route {
                    node_name,
                    provider_id,
                    next_hop,
                    gateway,
                    owner_id,
                    ..Route::new(name, destination_cidr)
                },
            },
            Self::Remove { name } => Command::RouteRemove { name },
        }
    }
}

impl FaultVerb {
    fn command(self) -> Command {
        match self {
            Self::List => Command::FaultList,
            Self::Set {
                rpc,
                kind,
                subject,
                times,
                code,
                message,
                reason,
                retry_after,
                status,
                delay,
                value,
            } => Command::FaultSet {
                fault: Fault {
                    subject,
                    times,
                    failure: code.map(|code| FailureSpec {
                        code,
                        reason,
                        message,
                        retry_after,
                    }),
                    status,
                    delay,
                    value,
                    ..Fault::new(rpc, kind)
                },
            },
            Self::Clear { id } => Command::FaultClear { id },
        }
    }
}
