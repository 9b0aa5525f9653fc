//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::commands::Shows;
use crate::control::{CallReport, NumberedFault};
use crate::faults::KINDS;
use crate::instances::{Address, Instance};
use crate::lies::Lie;
use crate::load_balancers::LoadBalancer;
use crate::routes::Route;

/// The most targets of a load balancer, or names of a call, to show.
const SHOWN_TARGETS: usize = 5;

/// The text of a result; JSON if requested.
pub(crate) fn print(shows: Shows, json: bool, result: &Value) -> Result<String, String> {
    if json {
        serde_json::to_string_pretty(result).map_err(|error| error.to_string())
    } else {
        Ok(show(shows, result))
    }
}

/// The text of a command's result: a table, one value, JSON, or nothing.
fn show(shows: Shows, result: &Value) -> String {
    let shown = match shows {
        Shows::Instances => read::<Vec<_>>(result).map(|list| instances(&list)),
        Shows::LoadBalancers => read::<Vec<_>>(result).map(|list| load_balancers(&list)),
        Shows::Routes => read::<Vec<_>>(result).map(|list| routes(&list)),
        Shows::Faults => read::<Vec<_>>(result).map(|list| faults(&list)),
        Shows::Calls => read(result).map(|report| calls(&report)),
        Shows::ProviderId => result["provider_id"].as_str().map(Into::into),
        Shows::Handle => result["handle"].as_str().map(Into::into),
        Shows::Nothing => Some(String::new()),
        Shows::Json => None,
    };
    shown.unwrap_or_else(|| {
        if result.is_null() {
            String::new()
        } else {
            format!("{result:#}")
        }
    })
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

fn or_dash(text: Option<&String>) -> String {
    text.filter(|text| !text.is_empty())
        .map_or_else(|| "-".into(), Clone::clone)
}

fn join(list: &[String], shown: usize) -> String {
    match list {
        [] => "-".into(),
        list if list.len() > shown => format!(
            "{} and {} more",
            list[..shown].join(","),
            list.len() - shown
        ),
        list => list.join(","),
    }
}

fn instances(list: &[Instance]) -> String {
    table(
        &[
            "NAME",
            "ID",
            "PROVIDER-ID",
            "TYPE",
            "ZONE",
            "REGION",
            "POWER",
            "ADDRESSES",
        ],
        list.iter().map(|instance| {
            let addresses: Vec<_> = instance.addresses.iter().map(Address::text).collect();
            vec![
                instance.name.clone(),
                instance.id.clone(),
                instance.provider_id.clone(),
                or_dash(instance.instance_type.as_ref()),
                or_dash(instance.zone.as_ref()),
                or_dash(instance.region.as_ref()),
                instance.power.to_string(),
                join(&addresses, 8),
            ]
        }),
    )
}

fn load_balancers(list: &[LoadBalancer]) -> String {
    table(
        &[
            "HANDLE",
            "SERVICE",
            "OWNER",
            "NAME",
            "ADDRESSES",
            "PORTS",
            "TARGETS",
            "STATE",
        ],
        list.iter().map(|lb| {
            let owner = lb.owner.as_ref();
            let state = match (lb.gone_at_ms, lb.remnant) {
                (Some(_), _) => "deleting",
                (None, true) => "remnant",
                (None, false) => "present",
            };
            let addresses: Vec<_> = lb
                .addresses
                .iter()
                .map(ToString::to_string)
                .chain(lb.hostname.clone())
                .collect();
            vec![
                lb.handle.clone(),
                owner.map_or_else(
                    || "-".into(),
                    |owner| format!("{}/{}", owner.namespace, owner.name),
                ),
                owner.map_or_else(|| "(unmarked)".into(), |owner| owner.owner_id.clone()),
                lb.name.clone(),
                join(&addresses, 4),
                join(&lb.config.ports, 4),
                format!("{}: {}", lb.targets.len(), join(&lb.targets, SHOWN_TARGETS)),
                state.into(),
            ]
        }),
    )
}

fn routes(list: &[Route]) -> String {
    table(
        &[
            "NAME",
            "DESTINATION",
            "NODE",
            "PROVIDER-ID",
            "NEXT-HOP",
            "GATEWAY",
            "OWNER",
        ],
        list.iter().map(|route| {
            vec![
                route.name.clone(),
                route.destination_cidr.clone(),
                or_dash(route.node_name.as_ref()),
                or_dash(route.provider_id.as_ref()),
                or_dash(route.next_hop.as_ref()),
                or_dash(route.gateway.as_ref()),
                route
                    .owner_id
                    .clone()
                    .unwrap_or_else(|| "(unmarked)".into()),
            ]
        }),
    )
}

fn faults(list: &[NumberedFault]) -> String {
    table(
        &["NUMBER", "RPC", "KIND", "SUBJECT", "TIMES", "WITH"],
        list.iter().map(|NumberedFault { id, fault }| {
            let code = fault
                .failure
                .as_ref()
                .map(|failure| failure.code.to_string());
            let delay = fault.delay.map(|delay| delay.to_string());
            let with = [code, fault.status.clone(), delay, fault.value.clone()];
            vec![
                id.to_string(),
                fault.rpc.clone(),
                fault.kind.to_string(),
                or_dash(fault.subject.as_ref()),
                fault
                    .times
                    .map_or_else(|| "until cleared".into(), |times| times.to_string()),
                join(&with.into_iter().flatten().collect::<Vec<_>>(), 4),
            ]
        }),
    )
}

fn calls(report: &CallReport) -> String {
    let counts = table(
        &["RPC", "CALLS"],
        report
            .counts
            .iter()
            .map(|(rpc, count)| vec![rpc.clone(), count.to_string()]),
    );
    let last = table(
        &["AT-MS", "RPC", "ABOUT", "OUTCOME", "TOOK-MS"],
        report.calls.iter().map(|call| {
            let about = match call.count {
                0 => "-".into(),
                1 => join(&call.names, 1),
                count => format!("{count}: {}", join(&call.names, SHOWN_TARGETS)),
            };
            vec![
                call.at_ms.to_string(),
                call.rpc.clone(),
                about,
                call.outcome.clone(),
                call.duration_ms.to_string(),
            ]
        }),
    );
    format!(
        "{counts}\n\nmutating calls: {}\ncloud writes: {}\n\n{last}",
        report.mutating_calls, report.cloud_writes
    )
}

/// The table of all named faults.
pub(crate) fn lies() -> String {
    table(
        &["FAULT", "BREAKS", "FOUND BY", "WHAT IT DOES"],
        Lie::all().map(|lie| {
            let rules: Vec<_> = lie.rules.iter().map(ToString::to_string).collect();
            let nothing = lie.rules.is_empty();
            vec![
                lie.name.into(),
                if nothing {
                    "nothing".into()
                } else {
                    rules.join(" ")
                },
                if nothing {
                    "-".into()
                } else {
                    lie.check.into()
                },
                lie.what.into(),
            ]
        }),
    )
}

/// The table of all kinds of faults.
pub(crate) fn kinds() -> String {
    table(
        &["KIND", "RPCS", "VALUE", "WHAT IT DOES"],
        KINDS.iter().map(|row| {
            let rpcs: Vec<_> = row.rpcs.iter().map(ToString::to_string).collect();
            vec![
                row.name.into(),
                join(&rpcs, 4),
                row.value.into(),
                row.doc.trim().into(),
            ]
        }),
    )
}
