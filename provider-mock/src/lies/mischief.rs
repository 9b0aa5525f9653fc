//! How the provider misbehaves at present: scripted faults, twists, and what these remember.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as pb;

use super::{Does, Lie, Twist, Twists};
use crate::cloud::Cloud;
use crate::error::CloudError;
use crate::faults::{Fault, Faults};

/// Beside the cloud's own state, which knows nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    pub(crate) faults: Faults,
    pub(crate) twists: Twists,
    /// Whom the provider was initialised for, to the layer's knowledge.
    pub(crate) initialized: Option<String>,
    /// Answer NOT_INITIALIZED until the next Initialize.
    pub(crate) forgot_initialize: bool,
    /// What twisted answers count.
    pub(crate) last_lie: u64,
    /// Where lookups wait for each other, for the twist that lets none go before its turn.
    pub(crate) line: Arc<tokio::sync::Mutex<()>>,
    /// What was first said about each Node, for the twist that repeats it.
    pub(crate) first_answers: BTreeMap<String, pb::Instance>,
    /// Why Probe says DEGRADED for ever, for the twists that never forget trouble.
    pub(crate) lasting_trouble: Option<String>,
}

impl Mischief {
    /// With the faults of a fixture.
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let mut mischief = Self::default();
        mischief.reset(faults);
        mischief
    }

    /// These faults and no others; twists stay.
    pub(crate) fn reset(&mut self, faults: &[Fault]) {
        self.faults.clear();
        for fault in faults {
            self.faults.add(fault.clone());
        }
        self.forgot_initialize = false;
    }
}

impl Cloud {
    /// Sets a fault; answers its number. A fault that makes no sense is refused.
    pub fn set_fault(&self, fault: Fault) -> Result<u64, CloudError> {
        fault.check().map_err(CloudError::Invalid)?;
        Ok(self.misbehave(|mischief| mischief.faults.add(fault)))
    }

    /// Clears the fault with this number; whether there was one.
    pub fn clear_fault(&self, id: u64) -> bool {
        self.misbehave(|mischief| mischief.faults.remove(id))
    }

    /// Clears all faults, also those of the fixture.
    pub fn clear_faults(&self) {
        self.misbehave(|mischief| mischief.faults.clear());
    }

    /// The faults that are set, with their numbers; `times` is what is left of it.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        self.mischief().faults.list()
    }

    /// Forgets that it was initialised: NOT_INITIALIZED until the next Initialize.
    pub fn forget_initialize(&self) {
        self.misbehave(|mischief| mischief.forgot_initialize = true);
    }

    /// The provider lies from here on: `serve --fault`. The names are in [`Lie::all`].
    pub fn tell(&self, name: &str) -> Result<(), CloudError> {
        let lie = Lie::find(name).map_err(CloudError::Invalid)?;
        match lie.does {
            Does::Twist(twist) => {
                self.misbehave(|mischief| mischief.twists = mischief.twists.with(twist));
            }
            Does::Script(faults) => {
                for fault in faults() {
                    self.set_fault(fault)?;
                }
            }
        }
        Ok(())
    }

    /// The provider is honest again: no twists, no scripted faults.
    pub fn be_honest(&self) {
        self.misbehave(|mischief| mischief.twists = Twists::default());
        self.clear_faults();
    }

    pub(crate) fn twists(&self) -> Twists {
        self.mischief().twists
    }

    pub(crate) fn twisted(&self, twist: Twist) -> bool {
        self.twists().has(twist)
    }

    /// Changes how the provider misbehaves, and wakes those who wait for a condition.
    fn misbehave<T>(&self, change: impl FnOnce(&mut Mischief) -> T) -> T {
        let changed = change(&mut self.mischief());
        self.changed();
        changed
    }
}
