//! A file of rules: read, and if it is one evaluated over two series, kept, and carried over.
//!
//! What must hold: nothing panics or takes long, what is wrong is told with words, what was kept is
//! read again, and the group that goes on from it keeps the same.

use plinth_env::{Env, block_on};
use plinth_promql::{Answered, Labels, Matcher, NAME, Value};
use plinth_rules::{Group, Options, Store, Written, WrittenHistogram};
use std::time::Duration;

const MINUTE: i64 = 60_000_000_000;

/// Gives two series to whoever asks.
struct Two;

impl Store for Two {
    async fn instant(&self, _: &str, _: i64, _: Duration) -> Result<Answered, String> {
        let series = |host: &str| [(NAME, "m"), ("host", host)].into_iter().collect::<Labels>();
        let values = [("a", 1.5), ("b", f64::NAN)];
        Ok(Answered::Vector(values.map(|(name, value)| (series(name), Value::Float(value))).into()))
    }

    async fn newest(&self, _: &[Matcher], _: i64, until: i64) -> Result<Vec<Written>, String> {
        let labels: Labels =
            [(NAME, "ALERTS_FOR_STATE"), ("host", "a"), ("alertname", "A")].into_iter().collect();
        Ok(vec![(labels, (until - MINUTE, 0.0))])
    }

    async fn write(&self, _: &[Written]) -> Result<Vec<(usize, String)>, String> {
        Ok(Vec::new())
    }

    async fn write_histograms(
        &self,
        _: &[WrittenHistogram],
    ) -> Result<Vec<(usize, String)>, String> {
        Ok(Vec::new())
    }
}

pub(crate) fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let specs = match plinth_rules::parse("rules.yml", &text) {
        Ok(specs) => specs,
        Err(faults) => {
            assert!(!faults.is_empty() && faults.iter().all(|fault| !fault.why.is_empty()));
            return;
        }
    };
    let env = Env::real();
    // Templates of many rules would take the time of many inputs.
    for spec in specs.into_iter().take(4).filter(|spec| spec.rules.len() < 20) {
        let mut group = Group::new("rules.yml", spec.clone(), &Options::default());
        for minute in 1..4 {
            block_on(group.evaluate(&Two, &env, minute * MINUTE));
        }
        let saved = group.save();
        let mut next = Group::new("rules.yml", spec, &Options::default());
        next.load(&saved).expect("what was kept is read again");
        assert_eq!(next.save(), saved);
        let (here, there) = (
            block_on(group.evaluate(&Two, &env, 4 * MINUTE)),
            block_on(next.evaluate(&Two, &env, 4 * MINUTE)),
        );
        assert_eq!(here.notices.len(), there.notices.len());
        assert_eq!(next.save(), group.save(), "it goes on as if it had not been kept");
    }
}
