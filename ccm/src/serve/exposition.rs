//! The metrics in the format of Go components: Prometheus' text format 0.0.4, converted from the
//! OpenMetrics text of prometheus-client.
//!
//! Without the conversion dashboards would see the differences: a counter's family name, `le="1.0"` instead of `le="1"`, the
//! types `info` and `unknown`. Go components do not offer OpenMetrics, so every client gets 0.0.4.

use std::borrow::Cow;
use std::fmt::Write as _;

use prometheus_client::registry::Registry;

/// The media type of Go components.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics as text.
pub(crate) fn encode(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(prometheus(&text))
}

/// Converts OpenMetrics text to Prometheus text.
fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Written together with its type, which decides about the name.
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                "stateset" => ("", "gauge"),
                kind => ("", kind),
            };
            if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                // Writing to a String does not fail.
                let _ = writeln!(text, "# HELP {name}{suffix} {words}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(&with_go_bounds(line));
            text.push('\n');
        }
    }
    text
}

/// Writes the bound of the sample's bucket as Go does.
fn with_go_bounds(sample: &str) -> Cow<'_, str> {
    // Quotes in a label's value are escaped, so this does not match inside of one.
    let Some(start) = sample
        .find("{le=\"")
        .or_else(|| sample.find(",le=\""))
        .map(|at| at + "{le=\"".len())
    else {
        return Cow::Borrowed(sample);
    };
    let Some(end) = sample[start..].find('"').map(|length| start + length) else {
        return Cow::Borrowed(sample);
    };
    match sample[start..end].parse::<f64>() {
        Ok(bound) if bound.is_finite() => {
            let bound = go_float(bound);
            Cow::Owned(format!("{}{bound}{}", &sample[..start], &sample[end..]))
        }
        _ => Cow::Borrowed(sample),
    }
}

/// As Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits, with an exponent below
/// 1e-4 and from 1e+06 on.
fn go_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;

    use super::*;

    #[test]
    fn b_m7_the_text_is_that_of_a_go_component() {
        let mut registry = Registry::default();
        let adds = Family::<[(&str, &str); 1], Counter>::default();
        adds.get_or_create(&[("name", r#"odd,le="0.5""#)]).inc_by(3);
        registry.register("workqueue_adds", "Keys added", adds);
        let seconds = Histogram::new([1e-8, 0.0001, 0.5, 1.0, 60.0, 1_048_576.0]);
        seconds.observe(0.75);
        registry.register("wait_seconds", "How long", seconds);
        registry.register("build", "Which", Info::new([("version", "1.2")]));
        let text = encode(&registry).unwrap();
        let expected = [
            "# HELP workqueue_adds_total Keys added.",
            "# TYPE workqueue_adds_total counter",
            r#"workqueue_adds_total{name="odd,le=\"0.5\""} 3"#,
            "# HELP wait_seconds How long.",
            "# TYPE wait_seconds histogram",
            "wait_seconds_sum 0.75",
            "wait_seconds_count 1",
            r#"wait_seconds_bucket{le="1e-08"} 0"#,
            r#"wait_seconds_bucket{le="0.0001"} 0"#,
            r#"wait_seconds_bucket{le="0.5"} 0"#,
            r#"wait_seconds_bucket{le="1"} 1"#,
            r#"wait_seconds_bucket{le="60"} 1"#,
            r#"wait_seconds_bucket{le="1.048576e+06"} 1"#,
            r#"wait_seconds_bucket{le="+Inf"} 1"#,
            "# HELP build_info Which.",
            "# TYPE build_info gauge",
            r#"build_info{version="1.2"} 1"#,
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
