//! Whether keys may be reconciled: only while the provider works, offers the capability that the
//! controller needs, and reaches the accepted cloud scope.

use std::sync::{Arc, Weak};

use super::driver::Reconciler;
use crate::provider::Session;

/// What the loop remembers about the provider's sessions.
#[derive(Default)]
pub(super) struct Gate {
    last: Weak<Session>,
    /// The provider was unusable when last asked.
    away: bool,
}

impl Gate {
    /// The session, if keys may be reconciled. A new session, or a provider that is usable again,
    /// ends the backoffs of transport failures at once (▲M9).
    pub(super) fn session<R: Reconciler>(&mut self, reconciler: &R) -> Option<Arc<Session>> {
        let driver = reconciler.driver();
        let now = driver.context.status.borrow();
        let Some(session) = now.usable(driver.needs) else {
            self.away = true;
            return None;
        };
        if std::mem::take(&mut self.away) {
            driver.queue.reset_transport_backoffs();
        }
        let current = Arc::downgrade(&session);
        if !current.ptr_eq(&self.last) {
            self.last = current;
            // `renewed` may read the status itself.
            let copy = now.clone();
            drop(now);
            driver.queue.reset_transport_backoffs();
            for key in reconciler.renewed(&session, &copy) {
                driver.queue.add(key);
            }
        }
        Some(session)
    }
}
