//! What is measured of rules, for `/metrics`.

use super::Rules;
use super::notify::Notifier;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

impl Rules {
    /// Appends it in Prometheus' format.
    pub(crate) fn metrics(&self, text: &mut String) {
        let counts = &self.counts;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let is_outdated = self.is_outdated();
        let numbers = [
            (
                "groups",
                "gauge",
                "Groups of rules that this server evaluates now.",
                self.statuses().len() as f64,
            ),
            (
                "evaluations_total",
                "counter",
                "Evaluations of rules since the start.",
                count(&counts.evaluations),
            ),
            (
                "evaluation_failures_total",
                "counter",
                "Evaluations of rules that failed.",
                count(&counts.failures),
            ),
            (
                "iterations_missed_total",
                "counter",
                "Evaluations of groups for which there was no time.",
                count(&counts.missed),
            ),
            ("points_total", "counter", "Points that rules gave.", count(&counts.points)),
            (
                "last_duration_seconds",
                "gauge",
                "How long the last evaluation of a group took.",
                count(&counts.last_micros) / 1e6,
            ),
            (
                "unsaved_total",
                "counter",
                "Times that what has to outlive a restart couldn't be kept.",
                count(&counts.unsaved),
            ),
            (
                "files_outdated",
                "gauge",
                "1 while files of rules have changed and make no sense: the rules before hold.",
                f64::from(u8::from(is_outdated)),
            ),
        ];
        for (name, kind, help, number) in numbers.into_iter().chain(self.notifications()) {
            // Writing to a string can't fail.
            let _ = write!(
                text,
                "# HELP plinth_rules_{name} {help}\n# TYPE plinth_rules_{name} {kind}\nplinth_rules_{name} {number}\n"
            );
        }
    }

    fn notifications(&self) -> [(&'static str, &'static str, &'static str, f64); 4] {
        let sum = |of: fn(&Notifier) -> u64| {
            self.notifiers.iter().map(|notifier| of(notifier)).sum::<u64>() as f64
        };
        [
            (
                "notifications_sent_total",
                "counter",
                "Alerts that an Alertmanager took.",
                sum(Notifier::sent),
            ),
            (
                "notification_errors_total",
                "counter",
                "Times that an Alertmanager couldn't be told.",
                sum(Notifier::errors),
            ),
            (
                "notifications_dropped_total",
                "counter",
                "Alerts that an Alertmanager won't be told: it refused them, or was away too long.",
                sum(Notifier::dropped),
            ),
            (
                "notification_queue_length",
                "gauge",
                "Alerts that wait to be told.",
                sum(Notifier::waiting),
            ),
        ]
    }
}
