//! The provider's current misbehaviour: scripted faults, twists, and their state.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud_provider_api::v1alpha1 as pb;

use super::{Does, Lie, Twist, Twists};
use crate::cloud::Cloud;
use crate::error::CloudError;
use crate::faults::{Fault, Faults};

/// The misbehaviour. It is separate from the state of the cloud.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    pub(crate) faults: Faults,
    pub(crate) twists: Twists,
    /// The owner ID of the last Initialize that passed the layer.
    pub(crate) initialized: Option<String>,
    /// Whether to answer NOT_INITIALIZED until the next Initialize.
    pub(crate) forgot_initialize: bool,
    /// The last number in an answer that a twist makes different each time.
    pub(crate) last_lie: u64,
    /// The queue of lookups, for the twist that runs one lookup at a time.
    pub(crate) line: Arc<tokio::sync::Mutex<()>>,
    /// The first answer about each Node, for the twist that repeats it.
    pub(crate) first_answers: BTreeMap<String, pb::Instance>,
    /// The reason of a permanent DEGRADED in Probe, for the twists after which Probe does not
    /// answer READY again.
    pub(crate) lasting_trouble: Option<String>,
    /// See [`Cloud::lied`].
    pub(crate) lied: u64,
}

impl Mischief {
    /// With the faults of a fixture.
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let mut mischief = Self::default();
        mischief.reset(faults);
        mischief
    }

    /// Replaces the faults; twists stay.
    pub(crate) fn reset(&mut self, faults: &[Fault]) {
        self.faults.clear();
        for fault in faults {
            self.faults.add(fault.clone());
        }
        self.forgot_initialize = false;
        self.lied = 0;
    }
}

impl Cloud {
    /// Sets a fault. Returns its number. Fails if the fault is invalid.
    pub fn set_fault(&self, fault: Fault) -> Result<u64, CloudError> {
        fault.check().map_err(CloudError::Invalid)?;
        Ok(self.misbehave(|mischief| mischief.faults.add(fault)))
    }

    /// Clears the fault with this number. Returns whether it existed.
    pub fn clear_fault(&self, id: u64) -> bool {
        self.misbehave(|mischief| mischief.faults.remove(id))
    }

    /// Clears all faults, also those of the fixture.
    pub fn clear_faults(&self) {
        self.misbehave(|mischief| mischief.faults.clear());
    }

    /// The active faults with their numbers. `times` is the number of calls that are left.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        self.mischief().faults.list()
    }

    /// Answers NOT_INITIALIZED until the next Initialize.
    pub fn forget_initialize(&self) {
        self.misbehave(|mischief| mischief.forgot_initialize = true);
    }

    /// Makes the provider lie from now on, as `serve --fault` does. [`Lie::all`] has the names.
    /// Lies of the socket and of the drain may have no effect until the provider starts again.
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

    /// Removes all twists and scripted faults. Their effects stay, such as a lasting DEGRADED in
    /// Probe.
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

    /// Changes the misbehaviour, and wakes the tasks that wait for a condition.
    fn misbehave<T>(&self, change: impl FnOnce(&mut Mischief) -> T) -> T {
        let changed = change(&mut self.mischief());
        self.changed();
        changed
    }
}
