//! What goes wrong, by call site and number: the third `PATCH services/status` loses its answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiFault {
    /// Nothing is done, and this status is answered.
    Code(u16),
    /// It is done, and the connection breaks before the answer.
    Lost,
    /// The connection breaks before anything is done.
    Broken,
    /// It takes so long.
    Late(Duration),
}

/// The faults of a run, and what was hit. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    planned: BTreeMap<(String, u32), ApiFault>,
    counts: BTreeMap<String, u32>,
    hit: BTreeMap<(String, String), u64>,
    off: bool,
}

impl Faults {
    /// The `number`th request (from 1) at this site goes wrong.
    pub fn plan(&self, site: &str, number: u32, fault: ApiFault) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.planned.insert((site.to_owned(), number), fault);
    }

    /// From now on nothing goes wrong.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).off = true;
    }

    pub(crate) fn api(&self, site: &str) -> Option<ApiFault> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.off {
            return None;
        }
        let count = inner.counts.entry(site.to_owned()).or_default();
        *count += 1;
        let number = *count;
        let fault = inner.planned.get(&(site.to_owned(), number)).copied()?;
        let kind = match fault {
            ApiFault::Code(code) => code.to_string(),
            ApiFault::Lost => "lost".to_owned(),
            ApiFault::Broken => "broken".to_owned(),
            ApiFault::Late(_) => "late".to_owned(),
        };
        *inner.hit.entry((site.to_owned(), kind)).or_default() += 1;
        Some(fault)
    }

    pub(crate) fn watch(&self, kind: &str) -> Option<ApiFault> {
        self.api(&format!("EVENT {kind}"))
    }

    /// Notes a fault that somebody else played.
    pub fn played(&self, site: &str, kind: &str) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *inner
            .hit
            .entry((site.to_owned(), kind.to_owned()))
            .or_default() += 1;
    }

    /// How often each kind of fault was hit at each site.
    #[must_use]
    pub fn hit(&self) -> BTreeMap<(String, String), u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .hit
            .clone()
    }
}
