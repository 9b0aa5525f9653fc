//! Marks that the provider does not write, writes wrongly, does not recognise, or recognises
//! although they are not the owner's.

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
}

impl Marks for TwistedMarks {
    fn of_cluster(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        let twists = self.twists();
        if twists.has(Twist::MarksCut) {
            let cut = |owner: &str| owner.bytes().take(63).collect::<Vec<_>>();
            return cut(&mark.owner_id) == cut(asker.owner_id);
        }
        if twists.has(Twist::MarksHashedOtherwise) {
            return mark.owner_id == hashed_otherwise(asker.owner_id);
        }
        if twists.has(Twist::PreviousForgotten) {
            return mark.owner_id == asker.owner_id;
        }
        Honest.of_cluster(asker, mark)
    }

    fn is_former(&self, asker: &Asker<'_>, mark: &Mark) -> bool {
        let twists = self.twists();
        let stays = [Twist::FormerMarksStay, Twist::MarksHashedOtherwise];
        !stays.iter().any(|twist| twists.has(*twist)) && Honest.is_former(asker, mark)
    }

    fn ownership(&self, asker: &Asker<'_>, load_balancer: &LoadBalancer) -> Ownership {
        let twists = self.twists();
        let same_uid = |mark: &Mark| mark.uid == asker.service.uid;
        let named = asker.handle == Some(load_balancer.handle.as_str());
        let owner = load_balancer.owner.as_ref();
        if (twists.has(Twist::FollowsHandle) && named)
            || (twists.has(Twist::AdoptsForeign) && owner.is_some_and(same_uid))
            || (twists.has(Twist::UnmarkedOurs) && owner.is_none())
        {
            return Ownership::Ours;
        }
        Honest.ownership(asker, load_balancer)
    }

    fn are_found(&self) -> bool {
        !self.twists().has(Twist::NeedsHandle)
    }

    fn mark(&self, asker: &Asker<'_>) -> Option<Mark> {
        let twists = self.twists();
        let mut mark = Honest.mark(asker)?;
        if twists.has(Twist::MarksHashedOtherwise) {
            mark.owner_id = hashed_otherwise(asker.owner_id);
        }
        if twists.has(Twist::LatestOwner)
            && let Some(latest) = &self.0.mischief().initialized
        {
            mark.owner_id.clone_from(latest);
        }
        (!twists.has(Twist::NoMark)).then_some(mark)
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
