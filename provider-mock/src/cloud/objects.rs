//! Access to load balancers and routes without the provider, for people and tests.

use provider_sdk::Change;

use super::Cloud;
use crate::error::CloudError;
use crate::load_balancers::LoadBalancer;
use crate::routes::{Route, is_cidr};

impl Cloud {
    /// All load balancers that exist, in the order of their handles.
    pub fn load_balancers(&self) -> Vec<LoadBalancer> {
        let now_ms = self.now_ms();
        let mut state = self.state();
        state.objects.load_balancers.settle(now_ms);
        state
            .objects
            .load_balancers
            .by_handle
            .values()
            .cloned()
            .collect()
    }

    /// The first load balancer that is marked for a Service with this name, of any owner.
    pub fn load_balancer(&self, namespace: &str, name: &str) -> Option<LoadBalancer> {
        self.load_balancers().into_iter().find(|lb| {
            lb.owner
                .as_ref()
                .is_some_and(|owner| owner.namespace == namespace && owner.name == name)
        })
    }

    /// Adds a load balancer, for example a foreign or an unmarked one. Returns its handle. This
    /// does not count as a write of the provider.
    pub fn plant_load_balancer(&self, load_balancer: LoadBalancer) -> Result<String, CloudError> {
        let change = hint_of(&load_balancer);
        let handle = {
            let mut state = self.state();
            let handle = &load_balancer.handle;
            if state.objects.load_balancers.by_handle.contains_key(handle) {
                return Err(CloudError::AlreadyExists(format!(
                    "load balancer {handle} exists already; leave the handle out, or remove that one first"
                )));
            }
            state.put_load_balancer(load_balancer, self.now_ms())?
        };
        self.hint(change);
        Ok(handle)
    }

    /// Changes a load balancer directly in the cloud.
    pub fn change_load_balancer(
        &self,
        handle: &str,
        change: impl FnOnce(&mut LoadBalancer),
    ) -> Result<LoadBalancer, CloudError> {
        let changed = {
            let mut state = self.state();
            let by_handle = &state.objects.load_balancers.by_handle;
            let mut changed = by_handle
                .get(handle)
                .cloned()
                .ok_or_else(|| no_load_balancer(handle))?;
            change(&mut changed);
            // Another handle would make it another load balancer.
            handle.clone_into(&mut changed.handle);
            state.put_load_balancer(changed.clone(), self.now_ms())?;
            changed
        };
        self.hint(hint_of(&changed));
        Ok(changed)
    }

    /// Removes a load balancer directly from the cloud.
    pub fn remove_load_balancer(&self, handle: &str) -> Result<LoadBalancer, CloudError> {
        let removed = self
            .state()
            .remove_load_balancer(handle, self.now_ms())?
            .ok_or_else(|| no_load_balancer(handle))?;
        self.hint(hint_of(&removed));
        Ok(removed)
    }

    /// All routes, in the order of their names.
    pub fn routes(&self) -> Vec<Route> {
        self.state()
            .objects
            .routes
            .by_name
            .values()
            .cloned()
            .collect()
    }

    /// Adds a route, for example a foreign or an unmarked one. This does not count as a write of
    /// the provider.
    pub fn plant_route(&self, route: Route) -> Result<(), CloudError> {
        if !is_cidr(&route.destination_cidr) {
            return Err(CloudError::Invalid(format!(
                "destination_cidr: {:?} is not a CIDR; write one such as 10.0.1.0/24",
                route.destination_cidr
            )));
        }
        {
            let mut state = self.state();
            if state.objects.routes.by_name.contains_key(&route.name) {
                return Err(CloudError::AlreadyExists(format!(
                    "route {:?} exists already; choose another name, or remove that one first",
                    route.name
                )));
            }
            let name = route.name.clone();
            state.set_route(&name, Some(route));
            state.save_routes(vec![(name, None)], self.now_ms())?;
        }
        self.hint(Change::Routes);
        Ok(())
    }

    /// Removes a route directly from the cloud.
    pub fn remove_route(&self, name: &str) -> Result<Route, CloudError> {
        let removed = {
            let mut state = self.state();
            let removed = state.set_route(name, None);
            let removed = removed.ok_or_else(|| {
                CloudError::NotFound(format!(
                    "no route has the name {name:?}; `ctl route list` shows them"
                ))
            })?;
            let before = vec![(name.to_owned(), Some(removed.clone()))];
            state.save_routes(before, self.now_ms())?;
            removed
        };
        self.hint(Change::Routes);
        Ok(removed)
    }
}

fn hint_of(load_balancer: &LoadBalancer) -> Change {
    let owner = load_balancer.owner.clone().unwrap_or_default();
    if owner.name.is_empty() {
        return Change::Resync;
    }
    Change::LoadBalancer {
        namespace: owner.namespace,
        name: owner.name,
    }
}

fn no_load_balancer(handle: &str) -> CloudError {
    CloudError::NotFound(format!(
        "no load balancer has the handle {handle:?}; `ctl lb list` shows them"
    ))
}
