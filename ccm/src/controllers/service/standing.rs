//! Compares complete lists of load balancers with existing Services. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use cloud_provider_api::v1alpha1::ListedLoadBalancer;

/// The number of lists in a row that must agree.
const LISTS: u32 = 2;
/// The most checks after one list, or a tenth of the provider's Services if that is more. A wrong
/// list must not cause many calls at once.
const LOOKS: usize = 10;

/// A Service for the comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) uid: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The stored handle of this provider.
    pub(super) handle: Option<&'a str>,
    /// The provider confirmed its load balancer, and no job runs now.
    pub(super) confirmed: bool,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Odd {
    /// The names of further load balancers that are marked for the Service. Its UID identifies one
    /// load balancer (LB-1), so there must be no other.
    Several(Vec<String>),
    /// The provider confirmed the load balancer but does not list it.
    Unlisted,
}

/// A Service's index in the input, and its difference.
pub(super) type Finding = (usize, Odd);

/// The result of one list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stands {
    /// New differences to report: each once while consecutive lists of a session show it.
    pub(super) news: Vec<Finding>,
    /// Services to check because their load balancer is not listed: each once while consecutive
    /// lists of a session lack it.
    pub(super) looks: Vec<usize>,
    /// The number of Services with several load balancers in this list and the one before.
    pub(super) several: usize,
    /// The number of Services whose load balancer is in neither this list nor the one before.
    pub(super) unlisted: usize,
}

/// The results of earlier lists.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// By UID.
    seen: BTreeMap<String, Seen>,
}

/// The difference of one Service.
#[derive(Debug)]
struct Seen {
    odd: Odd,
    /// The number of consecutive lists with it.
    times: u32,
    looked: bool,
}

impl Standing {
    /// Handles a complete list.
    pub(super) fn pass(&mut self, listed: &[ListedLoadBalancer], services: &[Known<'_>]) -> Stands {
        let shown = Shown::of(listed);
        let before = std::mem::take(&mut self.seen);
        let mut stands = Stands::default();
        for (index, service) in services.iter().enumerate() {
            let Some(odd) = shown.odd(service) else {
                continue;
            };
            // If only the further load balancers change, the difference counts as the same one.
            let before = before.get(service.uid);
            let before = before.filter(|was| discriminant(&was.odd) == discriminant(&odd));
            let times = before.map_or(1, |was| was.times.saturating_add(1));
            let mut looked = before.is_some_and(|was| was.looked);
            if times == LISTS {
                stands.news.push((index, odd.clone()));
            }
            if times >= LISTS {
                match odd {
                    Odd::Several(_) => stands.several += 1,
                    Odd::Unlisted => {
                        stands.unlisted += 1;
                        if !looked && stands.looks.len() < LOOKS.max(services.len() / 10) {
                            stands.looks.push(index);
                            looked = true;
                        }
                    }
                }
            }
            let seen = Seen { odd, times, looked };
            self.seen.insert(service.uid.to_owned(), seen);
        }
        stands
    }
}

/// A list with its indexes.
struct Shown<'a> {
    /// For each Service UID in a mark: the names of its load balancers, by handle.
    marked: BTreeMap<&'a str, BTreeMap<&'a str, &'a str>>,
    /// Marks without a UID.
    names: BTreeSet<(&'a str, &'a str)>,
    all: BTreeSet<&'a str>,
}

impl<'a> Shown<'a> {
    fn of(listed: &'a [ListedLoadBalancer]) -> Self {
        let mut shown = Self {
            marked: BTreeMap::new(),
            names: BTreeSet::new(),
            all: BTreeSet::new(),
        };
        for balancer in listed {
            let handle = balancer.handle.as_deref();
            let handle = handle.filter(|handle| !handle.is_empty());
            shown.all.extend(handle);
            for owner in &balancer.owners {
                if owner.uid.is_empty() {
                    shown.names.insert((&owner.namespace, &owner.name));
                } else {
                    let name = &*balancer.load_balancer_name;
                    let marked = shown.marked.entry(&owner.uid).or_default();
                    marked.extend(handle.map(|handle| (handle, name)));
                }
            }
        }
        shown
    }

    fn odd(&self, service: &Known<'_>) -> Option<Odd> {
        match (self.marked.get(service.uid), service.handle) {
            // A Service that is not confirmed is not compared: during a replacement, its old load
            // balancer may exist beside the new one. If none of the marked load balancers has the
            // stored handle, they count as parts of one.
            (Some(marked), Some(stored)) if service.confirmed && marked.contains_key(stored) => {
                let others = marked.iter().filter(|(handle, _)| **handle != stored);
                let names: Vec<_> = others.map(|(_, name)| (*name).to_owned()).collect();
                (!names.is_empty()).then_some(Odd::Several(names))
            }
            (Some(_), _) => None,
            (None, stored) => {
                let listed = self.names.contains(&(service.namespace, service.name))
                    || stored.is_some_and(|stored| self.all.contains(stored));
                (service.confirmed && !listed).then_some(Odd::Unlisted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cloud_provider_api::v1alpha1::ServiceRef;

    use super::*;

    fn listed(handle: &str, uids: &[&str]) -> ListedLoadBalancer {
        let owner = |uid: &&str| ServiceRef {
            namespace: "default".to_owned(),
            name: format!("s-{uid}"),
            uid: (*uid).to_owned(),
        };
        ListedLoadBalancer {
            load_balancer_name: format!("lb of {handle}"),
            handle: (!handle.is_empty()).then(|| handle.to_owned()),
            owners: uids.iter().map(owner).collect(),
        }
    }

    fn known<'a>(uid: &'a str, handle: &'a str) -> Known<'a> {
        Known {
            uid,
            namespace: "default",
            name: "web",
            handle: (!handle.is_empty()).then_some(handle),
            confirmed: true,
        }
    }

    /// The differences that the controller reports when it gets this list twice in a row.
    fn reported(listed: &[ListedLoadBalancer], services: &[Known<'_>]) -> Vec<Finding> {
        let mut standing = Standing::default();
        let first = standing.pass(listed, services);
        assert_eq!(first, Stands::default(), "one list is not enough");
        let second = standing.pass(listed, services);
        let third = standing.pass(listed, services);
        assert_eq!(third.news, [], "each is reported once");
        assert_eq!(third.looks, [0; 0], "and checked once");
        let counted = |stands: &Stands| (stands.several, stands.unlisted);
        assert_eq!(
            counted(&second),
            counted(&third),
            "counted as long as it lasts"
        );
        let unlisted = second.news.iter().filter(|(_, odd)| *odd == Odd::Unlisted);
        let unlisted: Vec<usize> = unlisted.map(|(index, _)| *index).collect();
        assert_eq!(second.looks, unlisted);
        let unlisted = unlisted.len();
        let several = second.news.len() - unlisted;
        assert_eq!(counted(&second), (several, unlisted));
        second.news
    }

    #[test]
    fn s16_what_an_honest_list_shows_is_not_told() {
        let services = [known("a", "h-a"), known("b", "h-b"), known("c", "")];
        let apart = [
            listed("h-a", &["a"]),
            listed("h-b", &["b", "another"]),
            listed("", &["c"]),
            listed("h-z", &["gone"]),
        ];
        assert_eq!(reported(&apart, &services), []);
        let shared = [listed("h-a", &["a", "b", "c"])];
        assert_eq!(reported(&shared, &services), [], "one for all of them");
        // Several parts of one load balancer, with handles of their own or without.
        let parts = [listed("p-1", &["a"]), listed("p-2", &["a"])];
        assert_eq!(reported(&parts, &services[..1]), []);
        let unnamed = [listed("h-a", &["a"]), listed("", &["a"])];
        assert_eq!(reported(&unnamed, &services[..1]), []);
    }

    #[test]
    fn s16_several_load_balancers_of_one_service_are_told() {
        let list = [
            listed("h-old", &["a"]),
            listed("h-a", &["a"]),
            listed("h-b", &["b"]),
        ];
        let services = [known("b", "h-b"), known("a", "h-a")];
        let several = |handles: &[&str]| {
            let names = handles.iter().map(|handle| format!("lb of {handle}"));
            Odd::Several(names.collect())
        };
        assert_eq!(reported(&list, &services), [(1, several(&["h-old"]))]);
        // A growing number does not delay the report.
        let more = [&list[..], &[listed("h-new", &["a"])]].concat();
        let mut standing = Standing::default();
        assert_eq!(standing.pass(&list, &services).news, []);
        assert_eq!(
            standing.pass(&more, &services).news,
            [(1, several(&["h-new", "h-old"]))]
        );
        // During a job the old load balancer may exist beside the new one.
        let busy = Known {
            confirmed: false,
            ..known("a", "h-a")
        };
        assert_eq!(reported(&list, &[busy]), []);
    }

    #[test]
    fn s16_what_was_said_to_stand_and_is_not_listed_is_told() {
        let services = [known("a", "h-a"), known("b", "")];
        let all = [(0, Odd::Unlisted), (1, Odd::Unlisted)];
        assert_eq!(reported(&[], &services), all);
        assert_eq!(reported(&[listed("h-b", &["b"])], &services), all[..1]);
        // Marked only by name, or found by its handle.
        let mut by_name = listed("", &[""]);
        by_name.owners[0].name = "web".to_owned();
        assert_eq!(reported(&[by_name], &services[..1]), []);
        assert_eq!(reported(&[listed("h-a", &[])], &services[..1]), []);
        let busy = Known {
            confirmed: false,
            ..known("a", "h-a")
        };
        assert_eq!(reported(&[], &[busy]), [], "it is not confirmed");
    }

    #[test]
    fn s16_a_list_without_anything_makes_few_looks_at_once() {
        for (many, at_once) in [(15, 10), (150, 15)] {
            let uids: Vec<String> = (0..many).map(|i| format!("u{i}")).collect();
            let services: Vec<_> = uids.iter().map(|uid| known(uid, "")).collect();
            let mut standing = Standing::default();
            let mut looked = Vec::new();
            assert_eq!(standing.pass(&[], &services).looks, [0; 0]);
            while looked.len() < many {
                let looks = standing.pass(&[], &services).looks;
                assert_eq!(looks.len(), at_once.min(many - looked.len()));
                looked.extend(looks);
            }
            assert_eq!(looked, (0..many).collect::<Vec<_>>());
            assert_eq!(standing.pass(&[], &services).looks, [0; 0], "each once");
        }
    }

    #[test]
    fn s16_the_row_of_lists_breaks_where_one_says_otherwise() {
        let services = [known("a", "h-a")];
        let good = [listed("h-a", &["a"])];
        let several = [listed("h-a", &["a"]), listed("h-old", &["a"])];
        let mut standing = Standing::default();
        for list in [&[][..], &good, &[], &several, &[]] {
            assert_eq!(standing.pass(list, &services), Stands::default());
        }
        standing = Standing::default();
        let nothing = Stands::default();
        let unlisted = Stands {
            news: vec![(0, Odd::Unlisted)],
            looks: vec![0],
            several: 0,
            unlisted: 1,
        };
        assert_eq!(standing.pass(&[], &services), nothing);
        assert_eq!(standing.pass(&[], &services), unlisted);
        assert_eq!(standing.pass(&good, &services), nothing);
        assert_eq!(standing.pass(&[], &services), nothing);
        assert_eq!(standing.pass(&[], &services), unlisted, "again");
    }
}
