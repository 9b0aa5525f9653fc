//! Requests within the limit of bytes, and answers that keep to the contract. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use cloud_provider_api::v1alpha1 as api;
use prost::Message;

use super::{CallError, view};
use crate::core::is_dns_name;
pub(crate) use crate::core::text::TEXT_LIMIT;
use crate::core::text::plain;

/// The most bytes of a name, and of other short texts such as a cloud scope or a prefix of provider
/// IDs (CORE-11).
pub(crate) const NAME_LIMIT: usize = 253;
/// The most bytes of a message that becomes part of a Kubernetes object: an instance, the status of
/// a load balancer, the labels of a volume (CORE-11).
const ITEM_LIMIT: usize = 64 * 1024;
/// The most events of one answer that the ccm reads (CORE-11).
pub(crate) const MOST_EVENTS: usize = 32;
/// The most bytes of a request, unless the provider says otherwise.
pub(crate) const DEFAULT_REQUEST_BYTES: u64 = 4 * 1024 * 1024;
/// The least that a provider may state as its `max_request_bytes`.
pub(crate) const LEAST_REQUEST_BYTES: u64 = 64 * 1024;

/// A text of the provider on one line, cut between two characters to at most `TEXT_LIMIT` bytes. A
/// cut text ends with `…`.
pub(crate) fn cut(text: &str) -> String {
    cut_for(text, 0)
}

/// Such a text, with room for this many bytes more.
pub(crate) fn cut_for(text: &str, more: usize) -> String {
    const MARK: char = '…';
    let most = TEXT_LIMIT.saturating_sub(more).max(MARK.len_utf8());
    let mut text = plain(text).into_owned();
    if text.len() > most {
        let end = text.floor_char_boundary(most - MARK.len_utf8());
        text.truncate(end);
        text.push(MARK);
    }
    text
}

/// The part of a foreign value that fits into a message.
pub(crate) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(128)]
}

/// `retry_after` of a failure, clamped to 1 s..10 min. `None` if it is no valid duration: then it
/// counts as absent.
pub(crate) fn retry_after(given: &prost_types::Duration) -> Option<Duration> {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_mins(10);
    duration(given).map(|given| given.clamp(SHORTEST, LONGEST))
}

/// When to ask again about something that is pending: 5 s if absent, else clamped to 1 s..10 min.
pub(crate) fn pending_after(pending: &api::Pending) -> Duration {
    pending
        .retry_after
        .as_ref()
        .and_then(retry_after)
        .unwrap_or(Duration::from_secs(5))
}

/// A duration as protobuf defines it. `None` if it is negative or malformed.
pub(crate) fn duration(given: &prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(given.seconds).ok()?;
    let nanos = u32::try_from(given.nanos).ok()?;
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

/// Whether this can be the error of a port, for example `CamelCase` or `domain/CamelCase`.
pub(crate) fn is_condition_reason(text: &str) -> bool {
    let name = match text.split_once('/') {
        None => text,
        Some((domain, name)) if is_dns_name(domain) => name,
        Some(_) => return false,
    };
    let bytes = name.as_bytes();
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 316
        && outer(bytes.first())
        && outer(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Cuts each batch, in its order, into batches whose items take at most `room` bytes of a request.
/// An item that takes more is alone.
pub(crate) fn cut_batches<I>(
    batches: Vec<Vec<I>>,
    room: usize,
    bytes: impl Fn(&I) -> usize,
) -> Vec<Vec<I>> {
    let mut cut: Vec<Vec<I>> = Vec::new();
    for batch in batches {
        let mut left = 0;
        for item in batch {
            let bytes = bytes(&item);
            // A field of the request: its tag (up to two bytes), its length, itself.
            let bytes = 2 + prost::length_delimiter_len(bytes) + bytes;
            if let Some(last) = cut.last_mut().filter(|_| bytes <= left) {
                last.push(item);
            } else {
                cut.push(vec![item]);
                left = room;
            }
            left = left.saturating_sub(bytes);
        }
    }
    cut
}

/// One item of an answer, by the Node or route that it names. A route's key is its name, and its
/// `uid` is empty. `outcome` is `None` if it is not set.
pub(crate) struct Named<T> {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) outcome: Option<Result<T, CallError>>,
}

/// The items of an answer, for the Nodes or routes of the request.
pub(crate) struct Matched<T> {
    /// In the order of the request.
    pub(crate) results: Vec<Result<T, CallError>>,
    /// Names in the answer that the request did not contain (cut, at most 10), for the log and the
    /// fault about them.
    pub(crate) strays: Vec<String>,
}

/// Gives each item to the Node or route that it names, by name and UID; `asked` has both.
/// `what` is the kind of item in the faults' texts, such as `node`. If a result is missing,
/// duplicated, unset or for another UID, its Node or route gets a fault. Results for anything
/// outside the request are strays.
pub(crate) fn match_results<T>(
    what: &str,
    asked: &[(String, String)],
    answer: impl IntoIterator<Item = Named<T>>,
) -> Matched<T> {
    let fault = |text: String| Err(CallError::fault(text));
    let mut found = BTreeMap::new();
    for (name, uid) in asked {
        let twice = found.contains_key(name.as_str());
        let result = twice.then(|| fault(format!("{what} {name:?} was asked about twice")));
        found.insert(name.as_str(), (uid.as_str(), result));
    }
    let mut strays = Vec::new();
    for item in answer {
        let name = item.name.as_str();
        let Some((uid, result)) = found.get_mut(name) else {
            if strays.len() < 10 {
                strays.push(shown(name).to_owned());
            }
            continue;
        };
        *result = Some(match (&result, item.outcome) {
            (Some(_), _) => fault(format!(
                "the provider's answer names {what} {name:?} more than once"
            )),
            (None, _) if item.uid != *uid => fault(format!(
                "the provider's answer for {what} {name:?} is for UID {:?}, not {uid:?}",
                shown(&item.uid)
            )),
            (None, None) => fault(format!(
                "the provider's answer for {what} {name:?} has no outcome, or one that this contract minor does not know"
            )),
            (None, Some(outcome)) => outcome,
        });
    }
    let mut result = |name: &str| found.get_mut(name).and_then(|(_, result)| result.take());
    let missing = |name: &str| {
        fault(format!(
            "the provider's answer has no result for {what} {name:?}"
        ))
    };
    let results = asked.iter();
    let results = results.map(|(name, _)| result(name).unwrap_or_else(|| missing(name)));
    let results = results.collect();
    Matched { results, strays }
}

/// Checks that an instance keeps to the contract: its size, a known state, valid addresses, and the
/// length of a provider ID. With `prefixes`, the ID must be of this provider (PROV-8).
pub(crate) fn check_instance(
    instance: api::Instance,
    prefixes: Option<&[String]>,
) -> Result<api::Instance, CallError> {
    check_item("the instance", &instance)?;
    // Includes an unknown state.
    if instance.state() == api::InstanceState::Unspecified {
        return Err(CallError::fault(format!(
            "the instance's state {} is not known",
            instance.state
        )));
    }
    match (&instance.provider_id, prefixes) {
        (Some(id), Some(prefixes)) => check_provider_id(id, prefixes)?,
        (Some(id), None) => check_text("provider_id", id)?,
        (None, _) => {}
    }
    view::node_addresses(&instance.addresses)?;
    Ok(instance)
}

/// Checks that a provider ID belongs to this provider (PROV-8).
pub(crate) fn check_provider_id(id: &str, prefixes: &[String]) -> Result<(), CallError> {
    check_text("provider_id", id)?;
    if prefixes
        .iter()
        .any(|prefix| id.starts_with(prefix.as_str()))
    {
        return Ok(());
    }
    Err(CallError::fault(format!(
        "provider_id {:?} begins with none of the provider's prefixes ({})",
        shown(id),
        prefixes.join(", ")
    )))
}

/// Checks a zone and region.
pub(crate) fn check_zone(zone: api::Zone) -> Result<api::Zone, CallError> {
    check_name("zone", zone.zone())?;
    check_name("region", zone.region())?;
    Ok(zone)
}

/// Checks a handle: absent, or 1 byte to 1 KiB.
pub(crate) fn check_handle(handle: Option<&str>) -> Result<(), CallError> {
    handle.map_or(Ok(()), |handle| check_text("handle", handle))
}

fn check_text(what: &str, text: &str) -> Result<(), CallError> {
    if text.is_empty() {
        return Err(CallError::fault(format!("{what} is set but empty")));
    }
    if text.len() > TEXT_LIMIT {
        return Err(past(what, text, TEXT_LIMIT));
    }
    Ok(())
}

fn past(what: &str, text: &str, limit: usize) -> CallError {
    CallError::fault(format!(
        "{what} {:?}… has {} bytes; at most {limit} are allowed",
        shown(text),
        text.len()
    ))
}

/// A fault if a name is too long.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), CallError> {
    if name.len() > NAME_LIMIT {
        return Err(past(what, name, NAME_LIMIT));
    }
    Ok(())
}

/// A fault if an item is too large for a part of a Kubernetes object.
pub(crate) fn check_item(what: &str, item: &impl Message) -> Result<(), CallError> {
    let bytes = item.encoded_len();
    if bytes > ITEM_LIMIT {
        return Err(CallError::fault(format!(
            "{what} has {bytes} bytes; at most {ITEM_LIMIT} are allowed"
        )));
    }
    Ok(())
}

/// A fault if a single request is larger than the provider accepts.
pub(crate) fn check_request(request: &impl Message, max_bytes: usize) -> Result<(), CallError> {
    let size = request.encoded_len();
    if size > max_bytes {
        return Err(CallError::fault(format!(
            "the request has {size} bytes: the provider's max_request_bytes is {max_bytes}"
        )));
    }
    Ok(())
}

/// Keeps the first events of an answer, with their texts cut.
pub(crate) fn cut_events(events: &mut Vec<api::Event>) {
    events.truncate(MOST_EVENTS);
    for event in events {
        event.reason = cut(&event.reason);
        event.message = cut(&event.message);
    }
}

#[cfg(test)]
mod tests;
