//! How to split a batch whose call failed as a whole. Pure.
//!
//! One of its items may have made the call fail. So the ccm splits the batch into smaller calls,
//! until that item is known. Most failures come quickly, so the ccm then halves the batch, which
//! needs few calls. A deadline is long, so after a missed deadline the ccm splits the batch into
//! tenths, which needs few rounds: two for a hundred items.

use super::CallErrorCode;

/// The most parts after a call that reached its deadline.
pub(super) const PARTS_OF_LATE: usize = 10;
/// The most parts after any other failure.
const PARTS_OF_FAILED: usize = 2;

/// Whether one of the items may have made the call fail. With the other codes a call fails whatever
/// its items are.
pub(super) fn because_of_itself(code: CallErrorCode) -> bool {
    matches!(
        code,
        CallErrorCode::Invalid
            | CallErrorCode::NotFound
            | CallErrorCode::Internal
            | CallErrorCode::Fault
            | CallErrorCode::Unknown
            | CallErrorCode::Deadline
    )
}

/// How many items of a failed batch of `count` go into each smaller call, at most.
pub(super) fn smaller(count: usize, code: CallErrorCode) -> usize {
    let parts = match code {
        CallErrorCode::Deadline => PARTS_OF_LATE,
        _ => PARTS_OF_FAILED,
    };
    count.div_ceil(parts).max(1)
}

/// How many calls the split makes.
pub(super) fn parts(count: usize, code: CallErrorCode) -> usize {
    count.div_ceil(smaller(count, code))
}

/// Splits a batch, in its order.
pub(super) fn cut<T: Clone>(items: &[T], code: CallErrorCode) -> Vec<Vec<T>> {
    let parts = items.chunks(smaller(items.len(), code));
    parts.map(<[_]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m10_tenths_after_a_deadline_and_halves_after_another_failure() {
        for (count, code, sizes) in [
            (100, CallErrorCode::Deadline, vec![10; 10]),
            (10, CallErrorCode::Deadline, vec![1; 10]),
            (23, CallErrorCode::Deadline, vec![3, 3, 3, 3, 3, 3, 3, 2]),
            (2, CallErrorCode::Deadline, vec![1, 1]),
            (100, CallErrorCode::Internal, vec![50, 50]),
            (5, CallErrorCode::Unknown, vec![3, 2]),
            (1, CallErrorCode::Internal, vec![1]),
            (0, CallErrorCode::Deadline, vec![]),
        ] {
            let parts = cut(&(0..count).collect::<Vec<_>>(), code);
            assert_eq!(
                parts.iter().map(Vec::len).collect::<Vec<_>>(),
                sizes,
                "{count} {code:?}"
            );
            assert_eq!(parts.len(), super::parts(count, code));
            assert!(parts.into_iter().flatten().eq(0..count), "nothing is lost");
        }
    }
}
