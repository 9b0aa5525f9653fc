//! Access to instances without the provider, for people and tests.

use provider_sdk::Change;

use super::Cloud;
use crate::error::CloudError;
use crate::instances::{Instance, Power};
use crate::store::Section;

impl Cloud {
    /// All instances, in the order of their IDs.
    pub fn instances(&self) -> Vec<Instance> {
        self.state().objects.instances.iter().cloned().collect()
    }

    /// The instance with this name.
    pub fn instance(&self, name: &str) -> Option<Instance> {
        self.state().objects.instances.by_name(name).cloned()
    }

    /// The instance with this provider ID.
    pub fn instance_of(&self, provider_id: &str) -> Option<Instance> {
        let state = self.state();
        state.objects.instances.by_provider_id(provider_id).cloned()
    }

    /// The number of instances.
    pub fn instance_count(&self) -> usize {
        self.state().objects.instances.len()
    }

    /// Adds an instance. Returns it with its ID and provider ID.
    pub fn add_instance(&self, mut instance: Instance) -> Result<Instance, CloudError> {
        if instance.name.is_empty() {
            return Err(CloudError::Invalid(
                "name: \"\" is empty; write a Node's name, such as node-1".into(),
            ));
        }
        {
            let mut state = self.state();
            let prefix = state.settings.provider.provider_id_prefixes.first();
            instance.complete(prefix.map_or("", String::as_str));
            state.objects.instances.add(instance.clone())?;
            state.save(&[Section::Instances], self.now_ms(), |objects| {
                objects.instances.put_back(Some(&instance.id), None);
            })?;
        }
        self.hint_instance(&instance);
        Ok(instance)
    }

    /// Removes the instance with this name or ID.
    pub fn remove_instance(&self, name_or_id: &str) -> Result<Instance, CloudError> {
        let removed = {
            let mut state = self.state();
            let removed = state.objects.instances.remove(name_or_id)?;
            state.save(&[Section::Instances], self.now_ms(), |objects| {
                objects.instances.put_back(None, Some(removed.clone()));
            })?;
            removed
        };
        self.hint_instance(&removed);
        Ok(removed)
    }

    /// Changes the instance with this name or ID in any field. Returns it after the change.
    pub fn change_instance(
        &self,
        name_or_id: &str,
        change: impl FnOnce(&mut Instance),
    ) -> Result<Instance, CloudError> {
        let (before, after) = {
            let mut state = self.state();
            let changed = state.objects.instances.change(name_or_id, change)?;
            let (before, after) = &changed;
            state.save(&[Section::Instances], self.now_ms(), |objects| {
                objects
                    .instances
                    .put_back(Some(&after.id), Some(before.clone()));
            })?;
            changed
        };
        if before.name != after.name {
            self.hint_instance(&before);
        }
        self.hint_instance(&after);
        Ok(after)
    }

    /// Renames the instance with this name or ID. ID and provider ID stay.
    pub fn rename_instance(&self, name_or_id: &str, name: &str) -> Result<Instance, CloudError> {
        self.change_instance(name_or_id, |instance| name.clone_into(&mut instance.name))
    }

    /// Shuts the instance with this name or ID down.
    pub fn stop_instance(&self, name_or_id: &str) -> Result<Instance, CloudError> {
        self.set_power(name_or_id, Power::Stopped)
    }

    /// Starts the instance with this name or ID.
    pub fn start_instance(&self, name_or_id: &str) -> Result<Instance, CloudError> {
        self.set_power(name_or_id, Power::Running)
    }

    /// Sets the power state that the cloud reports.
    pub fn set_power(&self, name_or_id: &str, power: Power) -> Result<Instance, CloudError> {
        self.change_instance(name_or_id, |instance| instance.power = power)
    }

    fn hint_instance(&self, instance: &Instance) {
        self.hint(Change::Instance {
            provider_id: instance.provider_id.clone(),
            node_name: instance.name.clone(),
        });
    }
}
