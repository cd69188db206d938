//! Reads what a gateway tells on `/metrics`: just enough of Prometheus's text form for labels without escapes.

use crate::http::request;

/// What was counted, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<Sample>);

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Asks the admin side for them.
    ///
    /// # Panics
    ///
    /// It does not answer well.
    pub fn fetch(admin_addr: &str) -> Metrics {
        let answer = request("GET", "/metrics").fetch(admin_addr).unwrap_or_else(|error| panic!("/metrics: {error}"));
        assert_eq!(answer.status, 200, "/metrics: {}", answer.text());
        Metrics::parse(&answer.text())
    }

    fn parse(text: &str) -> Metrics {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Metrics(lines.filter_map(Sample::parse).collect())
    }

    /// The sum of a metric's samples that have all of these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.label(label).is_some_and(|found| found == *value))
        };
        // Whole numbers all of them; a sum of no samples is a negative zero, which the cast makes a plain one.
        self.0.iter().filter(has).map(|sample| sample.value).sum::<f64>() as u64
    }

    /// The values that a label of a metric has, each once, in order.
    pub fn values(&self, name: &str, label: &str) -> Vec<&str> {
        let of_name = self.0.iter().filter(|sample| sample.name == name);
        let mut values: Vec<&str> = of_name.filter_map(|sample| sample.label(label)).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Sample> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let pairs = labels.trim_end_matches('}').split_terminator("\",");
        let pair = |pair: &str| {
            let (label, value) = pair.split_once("=\"")?;
            Some((label.to_owned(), value.trim_end_matches('"').to_owned()))
        };
        Some(Sample { name: name.to_owned(), labels: pairs.filter_map(pair).collect(), value: value.parse().ok()? })
    }

    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_that_are_not_asked_for() {
        let metrics = Metrics::parse(
            "# HELP a b\na{p=\"x\",o=\"good\"} 2\na{p=\"x\",o=\"bad, or so\"} 3\na{p=\"y\",o=\"good\"} 5\nb 7\n",
        );
        assert_eq!(metrics.sum("a", &[("p", "x")]), 5);
        assert_eq!(metrics.sum("a", &[("o", "bad, or so")]), 3);
        assert_eq!((metrics.sum("a", &[]), metrics.sum("b", &[]), metrics.sum("c", &[])), (10, 7, 0));
        assert_eq!(metrics.values("a", "p"), ["x", "y"]);
    }
}
