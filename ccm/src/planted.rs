//! Bugs that a simulation plants, to show that it finds them. Without the feature `simulation` there are none, and the compiler leaves the questions out.

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
            /// A bug that was mended once, or that somebody could make.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $(#[doc = $what] $name,)*
            }

            impl Bug {
                /// All of them.
                pub const ALL: &[Self] = &[$(Self::$name,)*];

                /// What it does.
                #[must_use]
                pub fn what(self) -> &'static str {
                    match self {
                        $(Self::$name => $what,)*
                    }
                }

                /// The finding of the review that it was; empty for one that was made up.
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
        StaleRenewal, "A3", "One patience covers all requests of a renewal, and after a conflict the next one begins with what was known before it.";
        UnversionedWrites, "A10", "Writes to Services carry no resourceVersion.";
        InSyncWithoutStatus, "A20", "A Get that says `in_sync` is believed although the status was never written.";
        SlowAnswersAreGivenUp, "A1", "Lookups that outlast their pass are given up, and asked again in the same batch.";
        DrainIsCut, "A2", "Calls in flight are cut when the provider begins to shut down.";
        FreedThoughCancelled, "A4", "The Lease is released although a call that changes the cloud was cancelled a moment ago.";
        LanesOfEachSession, "A9", "Each Initialize makes new places for calls beside those that are taken.";
        OtherClassIsMine, "A14", "A Service whose written class is not served here is taken for one's own.";
        TargetErrorsAreDropped, "A15", "Targets that could not be attached count as attached.";
        LaterClassesAreNotServed, "A16", "A provider that comes back with more classes gets none of the Services that it could not serve.";
        UnlistedIsNotLookedAt, "A18", "A load balancer that the lists lack is told of, and not looked at.";
        ClassIsWrittenOnce, "A19", "Provider and class are written only together with the finalizer.";
        FirstRouteFailureIsSilent, "A22", "A Node whose route cannot be made shows that from the fourth failure on.";
        OneOfTwoStays, "A23", "One of two Nodes waits for the brake's hold, though the other one vouches.";
        ForeignLabelIsReadAgain, "A8", "Who set a label is not remembered: the Node is read at each refresh.";
        ReadyFlapIsAnUpdate, "A12", "Whether a Node is Ready counts as a part of the target that it is.";
        StrayHopIsRight, "A17", "A route to an address that no Node has counts as right.";
        UnfencedCalls, "", "A call that changes the cloud passes no fence.";
        UnfencedWrites, "", "Writes to Kubernetes pass no fence.";
        OneAbsentIsEnough, "", "A Node goes after one ABSENT.";
        ReleasedTooEarly, "", "A Service is released as soon as its deletion was asked for.";
        HandleIsNotStored, "", "The handle of a load balancer is not stored.";
        FailedUpdateIsForgotten, "", "A failed Update is not followed by anything.";
        ChangeDuringWorkIsForgotten, "", "What changed while a Service was worked on is forgotten.";
        NodeRetryIsLost, "", "A Node whose write got no answer is not tried again.";
        AllTaintsGo, "", "With the taint of an uninitialised Node all others go.";
        AddressesAreCounted, "", "A Node's addresses are compared by their number.";
        SettlingTargetsCountAsNew, "", "A call that is made while Nodes settle has the targets of before, and counts as one with the new ones.";
        ReleasedOnTypeChange, "", "A Service that is no load balancer any more is released before the cloud's object went.";
        VanishedIsNotSeen, "", "What was deleted while nobody watched stays in the cache.";
        ThrottleIsIgnored, "", "THROTTLED slows nothing down.";
        NameIsTheNode, "", "A Node of the same name counts as the one that was to be deleted.";
        LostDeleteTakesRoom, "", "A Node whose delete request was not answered takes the brake's room twice.";
        VoidPassesCount, "", "ABSENT counts although no witness is recognised.";
    }

    const _: () = assert!(Bug::ALL.len() <= 64, "REACHED has a bit for each");

    /// Plants a bug for whatever runs on this thread from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
        REACHED.set(0);
    }

    /// Whether this thread reached the place of this bug since the last [`plant`]. What did not reach it runs in the same way with the bug.
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
