//! What changed between two views of an object.

use std::sync::Arc;

/// An object as it was when the reader last looked, and as it is now. Both may be of different UIDs
/// (deleted and made again under the same name). Never both `None`.
#[derive(Debug)]
pub(crate) struct Change<K> {
    /// What the reader saw last.
    pub(crate) old: Option<Arc<K>>,
    /// What is there now; `None`: deleted.
    pub(crate) new: Option<Arc<K>>,
}

/// One reader's unread changes, at most one per key.
pub(crate) struct Changes<K> {
    _objects: std::marker::PhantomData<K>,
}

impl<K> Changes<K> {
    /// All unread changes, in the order of their keys; waits until there is one.
    pub(crate) async fn next(&mut self) -> Vec<Change<K>> {
        todo!()
    }
}
