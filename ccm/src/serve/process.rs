//! `process_*` as in Prometheus' client libraries, and `ccm_build_info`: the metrics that operators
//! expect of any component.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{CurrentSI as _, KernelStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::args::version;

/// Registers both.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ThisProcess));
    // Not `kubernetes_build_info`, because alerts compare its versions across the cluster's
    // components.
    let build = Family::<[(&str, String); 3], Gauge>::default();
    let labels = [
        ("version", version::GIT_VERSION.to_owned()),
        ("commit", version::commit()),
        ("platform", version::platform()),
    ];
    build.get_or_create(&labels).set(1);
    registry.register(
        "ccm_build_info",
        "1, with the version of this ccm as labels",
        build,
    );
}

/// Reads `/proc` at each scrape, and omits values that it cannot read.
#[derive(Debug)]
struct ThisProcess;

/// A gauge: its name, its meaning and its value.
type Row = (&'static str, &'static str, Option<f64>);

/// The CPU time in seconds, and the gauges.
fn facts() -> procfs::ProcResult<(f64, [Row; 5])> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    let booted = KernelStats::current()?.btime as f64;
    let limit = process.limits().ok().map(|limits| limits.max_open_files);
    let gauges = [
        (
            "process_start_time_seconds",
            "When this process started, in seconds since the epoch",
            Some(booted + stat.starttime as f64 / ticks),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory of this process",
            Some(stat.rss as f64 * procfs::page_size() as f64),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory of this process",
            Some(stat.vsize as f64),
        ),
        (
            "process_open_fds",
            "Open file descriptors",
            process.fd_count().ok().map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "File descriptors that may be open",
            limit.and_then(|limit| match limit.soft_limit {
                LimitValue::Value(most) => Some(most as f64),
                LimitValue::Unlimited => None,
            }),
        ),
    ];
    Ok(((stat.utime + stat.stime) as f64 / ticks, gauges))
}

impl Collector for ThisProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (cpu_seconds, gauges) = match facts() {
            Ok(facts) => facts,
            Err(error) => {
                tracing::debug!(%error, "/proc cannot be read");
                return Ok(());
            }
        };
        let cpu = encoder.encode_descriptor(
            "process_cpu_seconds",
            "User and system CPU time of this process, in seconds",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(cpu_seconds).encode(cpu)?;
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_m7_what_operators_watch_of_a_process() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse::<f64>().ok())
                .unwrap_or_else(|| panic!("{name} in {text}"))
        };
        assert!(value("process_cpu_seconds_total") < 100_000.0);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-2.0..36_000.0).contains(&age), "{age}");
        let resident = value("process_resident_memory_bytes");
        assert!((1e6..1e11).contains(&resident));
        assert!(value("process_virtual_memory_bytes") >= resident);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        // The usual KubeVersionMismatch alert counts the versions under this name.
        assert!(!text.contains("kubernetes_build_info"));
        let build = text
            .lines()
            .find(|line| line.starts_with("ccm_build_info{"))
            .unwrap();
        assert!(
            build.contains(r#"version="v"#) && build.ends_with(" 1"),
            "{build}"
        );
    }
}
