//! Explains refusals by the API server, so that nobody looks for a broken network instead. Pure.

use kube::core::Status;
use kube::runtime::watcher;

/// Why the API server refuses: it does not recognise this process (401), or a right is missing
/// (403). `None`: the error is neither.
pub(crate) fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status) => of_status(status),
        _ => None,
    }
}

/// The same for a list or a watch.
pub(crate) fn refusal_of_watch(error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => refusal(error),
        watcher::Error::WatchError(status) => of_status(status),
        watcher::Error::NoResourceVersion => None,
    }
}

fn of_status(status: &Status) -> Option<String> {
    let message = &status.message;
    match status.code {
        401 => Some(format!(
            "it does not recognise this process (401): check its token and certificate. Its message: {message}"
        )),
        403 => Some(
            missing_right(message)
                .unwrap_or_else(|| format!("this process lacks the right (403): {message}")),
        ),
        _ => None,
    }
}

/// A sentence for people about the right that RBAC says is missing, with the command that checks
/// the right again. Parses the message of the API server's authorizers:
/// `R.G "NAME" is forbidden: User "U" cannot V resource "R" in API group "G"` with
/// ` in the namespace "N"` or ` at the cluster scope`, or `… cannot V path "P"`.
fn missing_right(message: &str) -> Option<String> {
    let (of, rest) = message.split_once("User \"")?;
    let (user, rest) = rest.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(' ')?;
    let (object, asked) = if let Some(rest) = rest.strip_prefix("path \"") {
        let (path, _) = rest.split_once('"')?;
        (path.to_owned(), path.to_owned())
    } else {
        let (resource, rest) = rest.strip_prefix("resource \"")?.split_once('"')?;
        let rest = rest.strip_prefix(" in API group \"")?;
        let (group, rest) = rest.split_once('"')?;
        let (kind, sub) = match resource.split_once('/') {
            Some((kind, sub)) => (kind, Some(sub)),
            None => (resource, None),
        };
        let mut object = kind.to_owned();
        if !group.is_empty() {
            object = format!("{object}.{group}");
        }
        // Without a name, the right is for all objects, or the API server left the name out.
        let named = of.strip_suffix("\" is forbidden: ");
        if let Some((_, name)) = named.and_then(|of| of.split_once('"')) {
            object = format!("{object}/{name}");
        }
        let mut asked = object.clone();
        if let Some(sub) = sub {
            object = format!("{sub} of {object}");
            asked = format!("{asked} --subresource={sub}");
        }
        let within = rest.strip_prefix(" in the namespace \"");
        match within.and_then(|rest| rest.split_once('"')) {
            Some((namespace, _)) => (
                format!("{object} in namespace {namespace}"),
                format!("{asked} -n {namespace}"),
            ),
            None => (
                format!("{object} in the whole cluster"),
                format!("{asked} -A"),
            ),
        }
    };
    let account = user.strip_prefix("system:serviceaccount:");
    let who = match account.and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => format!("service account {name} of namespace {namespace}"),
        None => format!("user {user:?}"),
    };
    Some(format!(
        "{who} lacks the right to {verb} {object} (kubectl auth can-i {verb} {asked} --as={user})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(
            Status::failure(message, "Forbidden")
                .with_code(code)
                .boxed(),
        )
    }

    #[test]
    fn b_m5_a_right_that_is_missing_is_named_with_whose_it_is() {
        let ccm = "system:serviceaccount:kube-system:cloud-controller-manager";
        let rows = [
            (
                format!("namespaces \"kube-system\" is forbidden: User \"{ccm}\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"kube-system\""),
                format!(
                    "service account cloud-controller-manager of namespace kube-system lacks the right to get namespaces/kube-system in namespace kube-system (kubectl auth can-i get namespaces/kube-system -n kube-system --as={ccm})"
                ),
            ),
            (
                format!("nodes is forbidden: User \"{ccm}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: RBAC: clusterrole \"x\" not found"),
                format!(
                    "service account cloud-controller-manager of namespace kube-system lacks the right to list nodes in the whole cluster (kubectl auth can-i list nodes -A --as={ccm})"
                ),
            ),
            (
                format!("leases.coordination.k8s.io \"a\" is forbidden: User \"{ccm}\" cannot get resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"n\""),
                format!(
                    "service account cloud-controller-manager of namespace kube-system lacks the right to get leases.coordination.k8s.io/a in namespace n (kubectl auth can-i get leases.coordination.k8s.io/a -n n --as={ccm})"
                ),
            ),
            (
                format!("nodes \"n\" is forbidden: User \"{ccm}\" cannot patch resource \"nodes/status\" in API group \"\" at the cluster scope"),
                format!(
                    "service account cloud-controller-manager of namespace kube-system lacks the right to patch status of nodes/n in the whole cluster (kubectl auth can-i patch nodes/n --subresource=status -A --as={ccm})"
                ),
            ),
            (
                "forbidden: User \"system:anonymous\" cannot get path \"/version\"".to_owned(),
                "user \"system:anonymous\" lacks the right to get /version (kubectl auth can-i get /version --as=system:anonymous)".to_owned(),
            ),
        ];
        for (message, expected) in rows {
            assert_eq!(refusal(&api(403, &message)), Some(expected));
            let watch = watcher::Error::InitialListFailed(api(403, &message));
            assert_eq!(refusal_of_watch(&watch), refusal(&api(403, &message)));
        }
        // The text of a webhook, a proxy or a later version is kept in full.
        for message in [
            "no",
            "User \"u\" cannot fly",
            "User \"u\" cannot get resource \"r\" of",
        ] {
            let reported = refusal(&api(403, message)).unwrap();
            assert!(reported.ends_with(message), "{reported}");
        }
        let unknown = refusal(&api(401, "Unauthorized")).unwrap();
        assert!(
            unknown.contains("does not recognise this process"),
            "{unknown}"
        );
        for code in [404, 409, 429, 500] {
            assert_eq!(
                refusal(&api(code, "User \"u\" cannot get resource \"r\"")),
                None
            );
        }
        let broken = kube::Error::Service(Box::new(std::io::Error::other("reset")));
        assert_eq!(refusal(&broken), None);
    }
}
