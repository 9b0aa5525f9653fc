//! What a person or a test sets while the cloud runs: latencies, how single Services and Nodes are treated, health.

use std::sync::Arc;
use std::time::Duration;

use provider_sdk::{Change, Health};

use super::Cloud;
use crate::error::CloudError;
use crate::faults::{ALL_RPCS, RPCS};
use crate::fixture::{FailureSpec, Fixture, ServiceBehaviour};
use crate::weather::Weather;

impl Cloud {
    /// The settings as they are now; its lists of objects are those of the beginning.
    pub fn settings(&self) -> Arc<Fixture> {
        Arc::clone(&self.state().settings)
    }

    /// Changes any setting: capabilities (seen at the next connection), address pools, scope, zones, clusters, volumes. Its lists of objects and its
    /// faults have no effect here. Settings that make no sense are refused.
    pub fn change_settings(&self, change: impl FnOnce(&mut Fixture)) -> Result<(), CloudError> {
        {
            let mut state = self.state();
            let mut settings = Fixture::clone(&state.settings);
            change(&mut settings);
            let wrong = settings.check();
            if !wrong.is_empty() {
                return Err(CloudError::Invalid(wrong.join("\n")));
            }
            state.settings = Arc::new(settings);
        }
        self.changed();
        Ok(())
    }

    /// How long calls of this RPC take, of all for `*`.
    pub fn set_latency(&self, rpc: &str, latency: Duration) -> Result<(), CloudError> {
        if rpc != ALL_RPCS && !RPCS.contains(&rpc) {
            return Err(CloudError::Invalid(format!(
                "{rpc:?} is no RPC; write * or one of {}",
                RPCS.join(", ")
            )));
        }
        self.change_settings(|settings| {
            if rpc == ALL_RPCS {
                settings.latency.clear();
                settings.latency.insert("default".into(), latency.into());
            } else {
                settings.latency.insert(rpc.into(), latency.into());
            }
        })
    }

    /// How long load balancers take to be made and to go.
    pub fn set_provisioning(
        &self,
        load_balancer: Duration,
        deletion: Duration,
    ) -> Result<(), CloudError> {
        self.change_settings(|settings| {
            settings.provisioning.load_balancer = load_balancer.into();
            settings.provisioning.deletion = deletion.into();
        })
    }

    /// How the Service (`namespace/name`) is treated.
    pub fn set_service(
        &self,
        service: &str,
        behaviour: ServiceBehaviour,
    ) -> Result<(), CloudError> {
        self.change_settings(|settings| {
            settings.services.insert(service.into(), behaviour);
        })
    }

    /// This Node cannot be attached to load balancers; it can where `None`.
    pub fn set_target_error(
        &self,
        node: &str,
        failure: Option<FailureSpec>,
    ) -> Result<(), CloudError> {
        self.change_settings(|settings| {
            match failure {
                Some(failure) => settings.target_errors.insert(node.into(), failure),
                None => settings.target_errors.remove(node),
            };
        })
    }

    /// The scope that Initialize answers from now on.
    pub fn set_cloud_scope(&self, scope: &str) -> Result<(), CloudError> {
        self.change_settings(|settings| scope.clone_into(&mut settings.provider.cloud_scope))
    }

    /// What Probe answers.
    pub fn set_health(&self, health: Health) {
        self.state().health = health;
        self.changed();
    }

    /// How every operation of the cloud goes from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
        self.changed();
    }

    /// How every operation of the cloud goes at present.
    pub fn weather(&self) -> Weather {
        self.state().weather
    }

    /// Tells watching controllers to look at everything again.
    pub fn hint_resync(&self) {
        self.hint(Change::Resync);
    }
}
