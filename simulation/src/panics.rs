//! Panics of all tasks of a run. The ccm catches panics of its jobs and goes on, so nothing else
//! would report them.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static HOOKED: Once = Once::new();

/// Forgets all panics. Later panics of this thread are noted.
pub(crate) fn forget() {
    HOOKED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            SEEN.with_borrow_mut(|seen| seen.push(panic.to_string()));
            before(panic);
        }));
    });
    SEEN.take();
}

/// The panics on this thread since the last call.
pub(crate) fn seen() -> Vec<String> {
    SEEN.take()
}
