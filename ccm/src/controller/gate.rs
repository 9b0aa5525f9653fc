//! Whether keys may be reconciled: only while the provider works, offers the capability that the
//! controller needs, and reaches the accepted cloud scope.

use std::sync::{Arc, Weak};

use super::driver::Reconciler;
use crate::provider::Session;

/// Pauses the queue while the provider is unusable. A new session ends the backoffs of transport
/// failures at once (▲M9).
pub(super) async fn follow<R: Reconciler>(reconciler: &R) {
    let driver = reconciler.driver();
    let (context, queue) = (&driver.context, &driver.queue);
    let mut status = context.status.clone();
    let mut last: Weak<Session> = Weak::new();
    let mut refusal_logged = false;
    loop {
        // Keeps no session while waiting: the last user of a session frees it.
        {
            let now = status.borrow_and_update().clone();
            if let Some(session) = now.usable(driver.needs) {
                let current = Arc::downgrade(&session);
                if !current.ptr_eq(&last) {
                    last = current;
                    queue.reset_transport_backoffs();
                    for key in reconciler.renewed(&session, &now) {
                        queue.add(key);
                    }
                }
                queue.resume();
                refusal_logged = false;
            } else {
                queue.pause();
                let refused = now.working().is_some() && !now.scope_accepted;
                if refused && !refusal_logged {
                    refusal_logged = true;
                    tracing::warn!(
                        provider = %context.provider,
                        controller = driver.name,
                        "controller makes no calls: the cloud scope is not the accepted one"
                    );
                }
            }
        }
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            changed = status.changed() => if changed.is_err() {
                queue.pause();
                return;
            },
        }
    }
}
