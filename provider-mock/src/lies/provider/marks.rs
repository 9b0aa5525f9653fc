//! Marks that the provider does not write, writes wrongly, does not recognise, or recognises
//! although they are not the owner's. A mark that the honest provider would treat otherwise counts
//! as a lie.

use provider_sdk::Ownership;

use crate::cloud::Cloud;
use crate::lies::{Twist, Twists};
use crate::load_balancers::{Asker, Honest, LoadBalancer, Mark, Marks};

/// Marks that follow the contract except for the active twists.
#[derive(Debug)]
pub(super) struct TwistedMarks(Cloud);

impl TwistedMarks {
    pub(super) fn new(cloud: Cloud) -> Self {
        Self(cloud)
    }

    fn twists(&self) -> Twists {
        self.0.twists()
    }

    /// Returns the twisted value. It is a lie if the honest one differs.
    fn counted<T: PartialEq>(&self, twisted: T, honest: &T) -> T {
        if twisted != *honest {
            self.0.count_lie();
        }
        twisted
    }
}

impl Marks for TwistedMarks {
    fn of_cluster(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        let twists = self.twists();
        let honest = Honest.of_cluster(asker, mark);
        let twisted = if twists.has(Twist::MarksCut) {
            let cut = |owner: &str| owner.bytes().take(63).collect::<Vec<_>>();
            cut(&mark.owner_id) == cut(asker.owner_id)
        } else if twists.has(Twist::MarksHashedOtherwise) {
            mark.owner_id == hashed_otherwise(asker.owner_id)
        } else if twists.has(Twist::PreviousForgotten) {
            mark.owner_id == asker.owner_id
        } else {
            honest
        };
        self.counted(twisted, &honest)
    }

    fn is_former(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        let twists = self.twists();
        let stays = [Twist::FormerMarksStay, Twist::MarksHashedOtherwise];
        let honest = Honest.is_former(asker, mark);
        let twisted = honest && !stays.iter().any(|twist| twists.has(*twist));
        self.counted(twisted, &honest)
    }

    fn ownership(&self, asker: &Asker<'_>, load_balancer: &LoadBalancer) -> Ownership {
        let twists = self.twists();
        let same_uid = |mark: &Mark| mark.uid == asker.service.uid;
        let named = asker.handle == Some(load_balancer.handle.as_str());
        let owner = load_balancer.owner.as_ref();
        let honest = Honest.ownership(asker, load_balancer);
        if (twists.has(Twist::FollowsHandle) && named)
            || (twists.has(Twist::AdoptsForeign) && owner.is_some_and(same_uid))
            || (twists.has(Twist::UnmarkedOurs) && owner.is_none())
        {
            return self.counted(Ownership::Ours, &honest);
        }
        honest
    }

    fn are_found(&self) -> bool {
        !self.twists().has(Twist::NeedsHandle)
    }

    fn mark(&self, asker: &Asker<'_>) -> Option<Mark> {
        let twists = self.twists();
        let honest = Honest.mark(asker)?;
        let mut mark = honest.clone();
        if twists.has(Twist::MarksHashedOtherwise) {
            mark.owner_id = hashed_otherwise(asker.owner_id);
        }
        if twists.has(Twist::LatestOwner)
            && let Some(latest) = &self.0.mischief().initialized
        {
            mark.owner_id.clone_from(latest);
        }
        let twisted = (!twists.has(Twist::NoMark)).then_some(mark);
        self.counted(twisted, &Some(honest))
    }
}

/// The owner ID in a mark: if it is longer than 63 bytes, its FNV-1a hash in 16 digits.
fn hashed_otherwise(owner_id: &str) -> String {
    if owner_id.len() <= 63 {
        return owner_id.to_owned();
    }
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = owner_id.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")
}
