//! The actions of users, kubelets, the console and operators.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use provider_mock::fixture::FailureSpec;
use provider_mock::{Fault, FaultKind, Instance, Power, Weather};
use provider_sdk::FailureCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{After, Run, wall};
use crate::api_server::store::{Id, Patch};
use crate::checker::model::USER_TYPE;
use crate::checker::{RECORD, UNINITIALIZED, has_finalizer, is_recorded};
use crate::plan::{CLASS, Class, Step, Trait};

pub(super) fn node(i: u8) -> String {
    format!("node-{i}")
}

fn node_id(i: u8) -> Id {
    Id::new("nodes", "", &node(i))
}

fn service(i: u8) -> Id {
    Id::new("services", "default", &format!("web-{i}"))
}

pub(super) fn pod_cidr(i: u8) -> String {
    format!("10.244.{i}.0/24")
}

impl Run {
    /// Whether the machine of this Node runs.
    fn runs(&self, i: u8) -> bool {
        let object = self.api.get(&node_id(i));
        let machine = object.and_then(|object| self.checker.machine_of(&object));
        machine.is_some_and(|one| one.power == Power::Running)
    }

    pub(super) async fn happens(&mut self, after: After) -> anyhow::Result<()> {
        match after {
            After::NotReady(i) => {
                if !self.runs(i) {
                    self.ready(i, "Unknown");
                }
            }
            After::IsReady(i) => {
                if self.runs(i) {
                    self.ready(i, "True");
                }
            }
            After::Register(i) => self.register(i),
            After::Boot(i) => {
                if self.cloud.instance(&node(i)).is_none() {
                    self.machine(i);
                    self.after(Duration::from_secs(20), After::Register(i));
                }
            }
            After::Honest(fault) => {
                self.cloud.clear_fault(fault);
            }
            After::FairWeather => self.weather(None),
            After::StartCcm(place) => {
                let process = self.start_ccm(place)?;
                self.processes[place] = process;
            }
            After::StartProvider => self.provider.start().await?,
        }
        Ok(())
    }

    /// Writes the Ready condition, like the kubelet or the node controller.
    fn ready(&self, i: u8, status: &str) {
        let now = wall(self.began).to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Simulated", "message": "", "lastTransitionTime": now, "lastHeartbeatTime": now});
        let patch = json!({"status": {"conditions": [condition]}});
        // The Node may be gone.
        let _ = self
            .api
            .act(|store| store.patch(&node_id(i), Patch::Strategic, true, &patch, "kubelet"));
    }

    /// The kubelet is late once, and a user labels the Node.
    pub(super) fn flap(&mut self, i: u8) {
        if self.runs(i) {
            self.ready(i, "False");
            self.after(Duration::from_secs(7), After::IsReady(i));
            self.step(&Step::LabelNode(i));
        }
    }

    /// Whether the Service has our finalizer, but no record of its load balancer. A change of its
    /// type or class would then orphan the load balancer.
    fn is_stripped(&self, id: &Id) -> bool {
        self.api.get(id).is_some_and(|now| {
            let record = &now["metadata"]["annotations"][RECORD];
            has_finalizer(&now) && record.is_null()
        })
    }

    fn user(&self, id: &Id, patch: &Value) {
        // A deleted object cannot be edited.
        let _ = self
            .api
            .act(|store| store.patch(id, Patch::Merge, false, patch, "kubectl"));
    }

    fn weather(&self, fail: Option<FailureCode>) {
        self.cloud.set_weather(Weather {
            fail,
            slow_ms: self.slow_ms,
        });
    }

    /// Sets a fault for this many seconds.
    fn lasting(&mut self, fault: Fault, seconds: u64) {
        let site = fault.rpc.clone();
        self.faults.played(&site, &fault.kind.to_string());
        match self.cloud.set_fault(fault) {
            Ok(number) => self.after(Duration::from_secs(seconds), After::Honest(number)),
            Err(error) => self.trace.note(format!("no such fault: {error}")),
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Join(i) => {
                if self.cloud.instance(&node(*i)).is_none() {
                    self.machine(*i);
                }
                self.register(*i);
            }
            Step::DeleteNode(i) => {
                // The Node may be gone.
                let _ = self
                    .api
                    .act(|store| store.delete(&node_id(*i), &Value::Null));
                // The kubelet registers again.
                self.after(Duration::from_secs(30), After::Register(*i));
            }
            Step::Ready(i, false) => {
                self.ready(*i, "False");
                self.after(Duration::from_secs(70), After::IsReady(*i));
            }
            Step::Ready(i, true) => {
                if self.runs(*i) {
                    self.ready(*i, "True");
                }
            }
            Step::Stop(i) => {
                if self.cloud.stop_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(40), After::NotReady(*i));
                }
            }
            Step::Start(i) => {
                if self.cloud.start_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(20), After::IsReady(*i));
                }
            }
            Step::Terminate(i) => {
                if self.cloud.remove_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(40), After::NotReady(*i));
                }
            }
            Step::Replace(i, seconds) => {
                if self.cloud.remove_instance(&node(*i)).is_ok() {
                    self.after(Duration::from_secs(40), After::NotReady(*i));
                    self.after(Duration::from_secs(*seconds), After::Boot(*i));
                }
            }
            Step::Readdress(i) => {
                self.machines += 1;
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 1, self.machines));
                // The instance may be gone.
                let _ = self.cloud.change_instance(&node(*i), |instance| {
                    instance.addresses = vec![provider_mock::Address::InternalIp(address)];
                });
            }
            Step::LabelNode(i) => {
                self.number += 1;
                let label = self.number.to_string();
                let patch = json!({"metadata": {"labels": {"user": label}}});
                self.user(&node_id(*i), &patch);
            }
            Step::OverwriteLabel(i) => {
                let labels = json!({"node.kubernetes.io/instance-type": USER_TYPE, "beta.kubernetes.io/instance-type": USER_TYPE});
                self.user(&node_id(*i), &json!({"metadata": {"labels": labels}}));
            }
            Step::TaintNode(i) => self.taint(*i),
            Step::Exclude(i, excluded) => {
                let value = excluded.then_some("true");
                let label =
                    json!({"node.kubernetes.io/exclude-from-external-load-balancers": value});
                self.user(&node_id(*i), &json!({"metadata": {"labels": label}}));
            }
            Step::TargetTrouble(i, trouble) => {
                let failure = trouble.then(|| FailureSpec::new(FailureCode::Precondition));
                // The settings do not restrict this name, so this cannot fail.
                let _ = self.cloud.set_target_error(&node(*i), failure);
            }
            Step::AbsentOnce(i) => {
                // After two such answers in a row, the ccm may delete the Node.
                if self.lied.insert(*i) {
                    let fault = Fault::new("LookupInstances", FaultKind::InstanceState)
                        .subject(node(*i))
                        .value("ABSENT");
                    self.lasting(fault.times(1), 600);
                }
            }
            Step::AllAbsent(seconds) => {
                let fault = Fault::new("LookupInstances", FaultKind::InstanceState).value("ABSENT");
                self.lasting(fault, *seconds);
            }
            step => self.of_service(step),
        }
    }

    fn of_service(&mut self, step: &Step) {
        match step {
            Step::Create(i, class) => self.create(*i, *class),
            Step::EditPort(i) => {
                let ports = self.port();
                self.user(&service(*i), &json!({"spec": {"ports": ports}}));
            }
            Step::Annotate(i) => {
                self.number += 1;
                let patch = json!({"metadata": {"annotations": {"example.com/note": self.number.to_string()}}});
                self.user(&service(*i), &patch);
            }
            Step::ToClusterIp(i) => {
                let id = service(*i);
                if !self.is_stripped(&id) {
                    let spec = json!({"type": "ClusterIP", "loadBalancerClass": null});
                    self.user(&id, &json!({"spec": spec}));
                }
            }
            Step::ToLoadBalancer(i, class) => {
                // A user cannot change the class of a Service that has type LoadBalancer already.
                let typed = self.api.get(&service(*i));
                let typed = typed.is_some_and(|now| now["spec"]["type"] == "ClusterIP");
                if typed && !self.is_stripped(&service(*i)) {
                    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": class.text()});
                    self.user(&service(*i), &json!({"spec": spec}));
                }
            }
            Step::Delete(i) => {
                // The Service may be gone.
                let _ = self
                    .api
                    .act(|store| store.delete(&service(*i), &Value::Null));
            }
            Step::StripRecord(i) => {
                // If the Service has another class now, only this record says that its old load
                // balancer still exists.
                let patch = json!({"metadata": {"annotations": {RECORD: null}}});
                let now = self.api.get(&service(*i));
                if now.is_some_and(|now| is_recorded(&now)) {
                    self.user(&service(*i), &patch);
                }
            }
            // Only a hint could show the removal, and the stream of hints hangs.
            Step::RemoveBalancer(_)
                if self.faults.has_hung("WatchChanges")
                    && !self.setup.has(Trait::InSync)
                    && !self.setup.has(Trait::ListsBalancers) => {}
            Step::RemoveBalancer(i) => {
                let object = self.api.get(&service(*i));
                let uid = object.and_then(|one| Some(one["metadata"]["uid"].as_str()?.to_owned()));
                let all = self.cloud.load_balancers();
                let own = all.iter().find(|one| {
                    let owner = one.owner.as_ref();
                    owner.is_some_and(|owner| Some(&owner.uid) == uid.as_ref())
                });
                if let Some(own) = own {
                    // The load balancer may be gone already.
                    let _ = self.cloud.remove_load_balancer(&own.handle);
                }
            }
            Step::PlantBalancer(whose) => self.plant_balancer(*whose),
            Step::RemoveRoute(i) => self.remove_routes(*i),
            Step::PlantRoute(i, whose) => self.plant_route(*i, *whose),
            step => self.operate(step),
        }
    }

    /// Steps for processes, connections, the API server and the whole cloud.
    fn operate(&mut self, step: &Step) {
        match step {
            Step::KillCcm(place) => self.kill(usize::from(*place)),
            Step::RollCcm(place) => self.end(usize::from(*place)),
            Step::RollAll => (0..self.processes.len()).for_each(|place| self.end(place)),
            Step::CutOff(place, seconds) => {
                let identity = Arc::clone(&self.processes[usize::from(*place)].identity);
                let wait = Duration::from_secs(*seconds);
                self.faults.lease_trouble(Instant::now() + wait);
                self.api.cut_off(&identity, wait);
            }
            Step::Suspend(seconds) => {
                let wait = Duration::from_secs(*seconds);
                self.faults.lease_trouble(Instant::now() + wait);
                self.suspended = Some(wait);
            }
            Step::SlowApi(by, seconds) => self.faults.slow(
                Instant::now() + Duration::from_secs(*seconds),
                Duration::from_millis(*by),
            ),
            Step::Compact => self.api.act(crate::api_server::store::Store::compact),
            Step::EditLease => {
                self.number += 1;
                let edited = json!({"metadata": {"annotations": {"example.com/edited": self.number.to_string()}}});
                self.user(
                    &Id::new("leases", "kube-system", crate::checker::LEASE),
                    &edited,
                );
            }
            Step::KillProvider(seconds) => {
                self.provider.kill();
                self.after(Duration::from_secs(*seconds), After::StartProvider);
            }
            Step::RollProvider => {
                self.provider.shut_down();
                self.after(Duration::from_secs(2), After::StartProvider);
            }
            Step::ServeClass => {
                // The class is valid, so this cannot fail.
                let _ = self.cloud.change_settings(|settings| {
                    let classes = &mut settings.capabilities.load_balancers.classes;
                    classes.retain(|class| class != CLASS);
                    classes.push(CLASS.to_owned());
                });
                self.provider.shut_down();
                self.after(Duration::from_secs(2), After::StartProvider);
            }
            Step::Disconnect => self.provider.disconnect(),
            Step::Forget => self.cloud.forget_initialize(),
            Step::Outage(code, seconds) => {
                self.weather(Some(*code));
                self.after(Duration::from_secs(*seconds), After::FairWeather);
            }
            Step::NoRoutes(seconds) => {
                let fault = Fault::failure("CreateRoutes", FailureCode::Internal);
                self.lasting(fault, *seconds);
            }
            _ => {}
        }
    }

    /// SIGTERM.
    pub(super) fn end(&self, place: usize) {
        let process = &self.processes[place];
        self.checker.ends(&process.identity);
        process.shutdown.cancel();
    }

    /// `kill -9`.
    fn kill(&self, place: usize) {
        let process = &self.processes[place];
        self.checker.ends(&process.identity);
        process.task.abort();
    }

    /// Kills the process that sent a request, as a planned fault asks for.
    pub(super) fn kill_sender(&self, identity: &Arc<str>) {
        let mut all = self.processes.iter();
        if let Some(place) = all.position(|one| one.identity == *identity) {
            self.trace.note(format_args!("{identity} dies"));
            self.kill(place);
        }
    }

    /// Creates a machine, whose kubelet registers later.
    fn machine(&mut self, i: u8) {
        self.machines += 1;
        let mut instance = Instance::new(node(i));
        instance.id = format!("i-{}", self.machines);
        let instance = instance
            .instance_type("mock.large")
            .place("zone-a", "region-1")
            .internal_ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.machines)));
        if let Err(error) = self.cloud.add_instance(instance) {
            self.trace.note(format!("no instance: {error}"));
        }
    }

    /// The kubelet of a machine registers. It waits while a Node of its name exists whose own
    /// machine is gone.
    fn register(&mut self, i: u8) {
        let running = |one: Instance| one.power == Power::Running;
        if !self.cloud.instance(&node(i)).is_some_and(running) {
            return;
        }
        if let Some(object) = self.api.get(&node_id(i)) {
            if self.checker.machine_of(&object).is_none() {
                self.after(Duration::from_secs(20), After::Register(i));
            }
            return;
        }
        let now = wall(self.began).to_string();
        let mut object = json!({
            "metadata": {"name": node(i), "labels": {"kubernetes.io/hostname": node(i)}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "", "lastTransitionTime": now, "lastHeartbeatTime": now}],
                "addresses": [{"type": "Hostname", "address": node(i)}],
            },
        });
        if self.routes {
            object["spec"]["podCIDR"] = json!(pod_cidr(i));
            object["spec"]["podCIDRs"] = json!([pod_cidr(i)]);
        }
        // No such Node exists, so this cannot fail.
        let _ = self.api.act(|store| store.create("nodes", "", object));
    }

    fn taint(&self, i: u8) {
        let Some(object) = self.api.get(&node_id(i)) else {
            return;
        };
        let mut taints = object["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = json!({"key": "example.com/user", "value": "true", "effect": "NoSchedule"});
        if !taints.contains(&own) {
            taints.push(own);
            self.user(&node_id(i), &json!({"spec": {"taints": taints}}));
        }
    }

    fn port(&mut self) -> Value {
        self.ports += 1;
        json!([{"port": self.ports, "protocol": "TCP", "nodePort": 30_000 + u32::from(self.ports), "targetPort": 8080}])
    }

    fn create(&mut self, i: u8, class: Class) {
        let id = service(i);
        let mut spec = json!({
            "type": "LoadBalancer", "clusterIP": format!("10.96.0.{i}"), "externalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "allocateLoadBalancerNodePorts": true,
            "ports": self.port(),
        });
        if let Some(class) = class.text() {
            spec["loadBalancerClass"] = json!(class);
        }
        let object =
            json!({"metadata": {"name": id.name}, "spec": spec, "status": {"loadBalancer": {}}});
        // An existing Service stays.
        let _ = self
            .api
            .act(|store| store.create("services", "default", object));
    }
}
