//! One benchmark run: workload after workload, each held against what is asked of it.

use crate::bench::GUIDE_ROWS;
use crate::machine::Machine;
use crate::outcome::Outcome;
use crate::report::{Provenance, Report};
use crate::served::Spent;
use crate::workloads::Workload;
use crate::{Bench, Result};

impl Bench {
    /// Runs these workloads, one after the other. A run that is stopped reports what it has.
    pub fn run(&self, workloads: &[&Workload], provenance: Provenance) -> Result<Report> {
        let mut report = Report {
            provenance,
            machine: Machine::this(&self.env, &self.directory),
            date: self.env.wall_clock(),
            settings: self.settings.clone(),
            load: self.load.clone(),
            outcomes: Vec::new(),
            skipped: Vec::new(),
        };
        for workload in workloads {
            report.add(workload.name, self.run_one(workload))?;
        }
        Ok(report)
    }

    /// Runs one workload.
    pub fn run_one(&self, workload: &Workload) -> Result<Outcome> {
        let before = Spent::now(&self.database);
        let mut outcome = (workload.run)(self)?;
        // Time series are no rows of the guide's.
        outcome.comparable &=
            self.settings.rows >= GUIDE_ROWS || workload.name.starts_with("series-");
        if let Some(before) = before {
            before.judge(&self.database, &mut outcome);
        }
        Ok(outcome)
    }
}
