//! Bugs that a simulation plants, to show that it finds them. Without the feature `simulation` no
//! bug is planted, and the compiler removes the checks.

#[cfg(feature = "simulation")]
mod on {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        /// A bit for each bug whose place was reached.
        static REACHED: Cell<u64> = const { Cell::new(0) };
    }

    macro_rules! bugs {
        ($($name:ident, $finding:literal, $what:literal;)*) => {
            /// A bug that was fixed once, or that somebody could make.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $(#[doc = $what] $name,)*
            }

            impl Bug {
                /// All bugs.
                pub const ALL: &[Self] = &[$(Self::$name,)*];

                /// The bug's effect.
                #[must_use]
                pub fn what(self) -> &'static str {
                    match self {
                        $(Self::$name => $what,)*
                    }
                }

                /// The finding of the review that reported it. Empty for any other bug.
                #[must_use]
                pub fn finding(self) -> &'static str {
                    match self {
                        $(Self::$name => $finding,)*
                    }
                }
            }
        };
    }

    bugs! {
        StaleRenewal, "A3", "One timeout covers all requests of a renewal, and after a conflict the next renewal starts from the Lease before that conflict.";
        UnversionedWrites, "A10", "Writes to Services carry no resourceVersion.";
        InSyncWithoutStatus, "A20", "The ccm trusts a Get that says `in_sync` although it never wrote the status.";
        SlowAnswersAreGivenUp, "A1", "The ccm gives up lookups that outlast their pass and repeats them in the same batch.";
        DrainIsCut, "A2", "The ccm cuts calls in flight when the provider begins to shut down.";
        FreedThoughCancelled, "A4", "The ccm releases the Lease although it cancelled a mutating call a moment ago.";
        LanesOfEachSession, "A9", "Each Initialize creates a new call limiter beside the one with calls in flight.";
        OtherClassIsMine, "A14", "The ccm treats a Service as its own although it does not serve the class that the Service records.";
        TargetErrorsAreDropped, "", "Targets that Ensure or Update could not attach count as attached.";
        LaterClassesAreNotServed, "A16", "A provider that comes back with more classes gets none of the Services that it could not serve before.";
        UnlistedIsNotLookedAt, "A18", "The ccm reports a load balancer that the lists lack and does not check it.";
        ClassIsWrittenOnce, "A19", "The ccm writes provider and class only together with the finalizer.";
        FirstRouteFailureIsSilent, "A22", "A Node whose route the cloud refuses gets its condition only with the fourth failure.";
        OneOfTwoStays, "A23", "One of two Nodes waits for the deletion brake although the other one is a witness.";
        ForeignLabelIsReadAgain, "A8", "The ccm does not remember who set a label and reads the Node at each refresh.";
        ReadyFlapIsAnUpdate, "A12", "A change of a Node's Ready condition counts as a change of the target.";
        StrayHopIsRight, "A17", "A route to an address that no Node has counts as right.";
        UnfencedCalls, "", "A call that changes the cloud passes no fence.";
        UnfencedWrites, "", "Writes to Kubernetes pass no fence.";
        OneAbsentIsEnough, "", "The ccm deletes a Node after one ABSENT.";
        ReleasedTooEarly, "", "The ccm releases a Service although Delete answered `pending`.";
        HandleIsNotStored, "", "The ccm does not store the handle of a load balancer.";
        FailedUpdateIsForgotten, "", "The ccm does nothing after a failed Update.";
        ChangeDuringWorkIsForgotten, "", "The ccm forgets a change that comes while it reconciles the Service.";
        NodeRetryIsLost, "", "The ccm does not retry a Node whose write got no answer.";
        AllTaintsGo, "", "The ccm removes all taints together with the `uninitialized` taint.";
        AddressesAreCounted, "", "The ccm compares a Node's addresses by their number.";
        SettlingTargetsCountAsNew, "", "A call that the ccm makes while Nodes settle sends the old targets, but counts as if it had sent the new ones.";
        ReleasedOnTypeChange, "", "The ccm releases a Service whose type is no longer LoadBalancer before the cloud's object is gone.";
        VanishedIsNotSeen, "", "An object that is deleted during a gap of the watch stays in the cache.";
        ThrottleIsIgnored, "", "THROTTLED slows nothing down.";
        NameIsTheNode, "", "A new Node of the same name counts as the one to delete.";
        LostDeleteTakesRoom, "", "A Node whose delete request got no answer counts twice for the deletion brake.";
        CallsInFlightAreFreed, "", "The ccm releases the Lease while a call that it has just cancelled still runs.";
        LateWatchIsTrusted, "", "A new leader creates a load balancer without reading the Service from the API server.";
        NoBrake, "", "No deletion brake holds Nodes back.";
        WitnessesVouchOnce, "", "The ccm asks about no more witnesses for ABSENT answers that come after those of the first ones.";
        FormerAddressesStay, "", "The ccm keeps a route that was made for former addresses of its Node.";
        OthersRoutesAreUnwanted, "", "The ccm deletes each route inside the cluster's network that has no Node.";
        UsersLabelIsReset, "", "The ccm resets a label that a user changed.";
        VoidPassesCount, "", "ABSENT counts although no witness is recognised.";
    }

    const _: () = assert!(Bug::ALL.len() <= 64, "REACHED has a bit for each");

    /// Plants a bug for all that runs on this thread from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
        REACHED.set(0);
    }

    /// Whether this thread reached the place of this bug since the last [`plant`]. A run that did
    /// not reach it is the same with and without the bug.
    #[must_use]
    pub fn is_reached(bug: Bug) -> bool {
        REACHED.get() & bit(bug) != 0
    }

    fn bit(bug: Bug) -> u64 {
        1 << bug as u64
    }

    pub(crate) fn is(bug: Bug) -> bool {
        REACHED.set(REACHED.get() | bit(bug));
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "simulation")]
pub use on::{Bug, is_reached, plant};

#[cfg(feature = "simulation")]
macro_rules! planted {
    ($bug:ident) => {
        crate::planted::is(crate::planted::Bug::$bug)
    };
}

#[cfg(not(feature = "simulation"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}

#[cfg(feature = "simulation")]
pub(crate) use on::is;
pub(crate) use planted;
