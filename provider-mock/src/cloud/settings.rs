//! Settings that a person or a test changes at run time: latencies, the treatment of Services and
//! Nodes, health.

use std::sync::Arc;
use std::time::Duration;

use provider_sdk::{Change, Health};

use super::Cloud;
use crate::error::CloudError;
use crate::faults::{ALL_RPCS, RPCS};
use crate::fixture::{FailureSpec, Fixture, ServiceBehaviour};
use crate::weather::Weather;

impl Cloud {
    /// The current settings. The lists of objects in them are not current.
    pub fn settings(&self) -> Arc<Fixture> {
        Arc::clone(&self.state().settings)
    }

    /// Changes any setting: capabilities (which a controller sees at its next connection), address
    /// pools, scope, zones, clusters, volumes. A service that was not offered is served only after
    /// a restart. Changed lists of objects and faults have no effect. Fails if the settings are
    /// invalid.
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

    /// Sets how long calls of this RPC take; `*` for all RPCs.
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

    /// Sets how long load balancers take to be created and deleted.
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

    /// Sets how the provider treats the Service (`namespace/name`).
    pub fn set_service(
        &self,
        service: &str,
        behaviour: ServiceBehaviour,
    ) -> Result<(), CloudError> {
        self.change_settings(|settings| {
            settings.services.insert(service.into(), behaviour);
        })
    }

    /// Sets the failure of attaching this Node to load balancers. `None`: it can be attached.
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

    /// Sets the scope in Initialize's answers.
    pub fn set_cloud_scope(&self, scope: &str) -> Result<(), CloudError> {
        self.change_settings(|settings| scope.clone_into(&mut settings.provider.cloud_scope))
    }

    /// Sets the answer of Probe.
    pub fn set_health(&self, health: Health) {
        self.state().health = health;
        self.changed();
    }

    /// Sets the weather: whether every operation of the cloud fails, and how long it is delayed.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
        self.changed();
    }

    /// The current weather.
    pub fn weather(&self) -> Weather {
        self.state().weather
    }

    /// Sends watching controllers the hint that any object may have changed.
    pub fn hint_resync(&self) {
        self.hint(Change::Resync);
    }
}
