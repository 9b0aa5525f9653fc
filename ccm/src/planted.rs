//! Bugs that a simulation plants, to show that it finds them. Without the feature `simulation` there are none, and the compiler leaves the questions out.

#[cfg(feature = "simulation")]
mod on {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// A bug that was mended once, or that somebody could make.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Bug {
        /// A renewal that met a conflict is tried again with what was read before it.
        StaleRenewal,
        /// Writes to Services carry no resourceVersion.
        UnversionedWrites,
        /// A call that changes the cloud passes no fence.
        UnfencedCalls,
        /// Writes to Kubernetes pass no fence.
        UnfencedWrites,
        /// A Get that says `in_sync` is believed although the status was never written.
        InSyncWithoutStatus,
        /// A Node goes after one ABSENT.
        OneAbsentIsEnough,
        /// A Service is released as soon as its deletion was asked for.
        ReleasedTooEarly,
        /// The handle of a load balancer is not stored.
        HandleIsNotStored,
        /// A failed Update is not followed by anything.
        FailedUpdateIsForgotten,
        /// What changed while a Service was worked on is forgotten.
        ChangeDuringWorkIsForgotten,
    }

    impl Bug {
        /// All of them.
        pub const ALL: [Self; 10] = [
            Self::StaleRenewal,
            Self::UnversionedWrites,
            Self::UnfencedCalls,
            Self::UnfencedWrites,
            Self::InSyncWithoutStatus,
            Self::OneAbsentIsEnough,
            Self::ReleasedTooEarly,
            Self::HandleIsNotStored,
            Self::FailedUpdateIsForgotten,
            Self::ChangeDuringWorkIsForgotten,
        ];
    }

    /// Plants a bug for whatever runs on this thread from now on.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "simulation")]
pub use on::{Bug, plant};

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
