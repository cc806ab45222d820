//! Commands that begin and end transactions, and ask for versions.

use super::data::number;
use super::session::{Begun, Options, Refusal, Session, apply};
use std::io::Write;
use std::time::Duration;

/// Longest sleep, in seconds: a day.
const SLEEP_MAX: f64 = 86_400.0;

/// `begin`
pub fn begin<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    if session.transaction.is_some() {
        return Err(Refusal::Usage(
            "a transaction has been begun already; commit or rollback ends it".to_owned(),
        ));
    }
    let transaction = session.create()?;
    session.transaction = Some(Begun { transaction, options: Options::new() });
    writeln!(session.out, "Transaction started")?;
    Ok(())
}

/// `commit`
pub fn commit<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let begun = begun(session)?;
    begun.transaction.commit().wait()?;
    let version = begun.transaction.committed_version();
    session.transaction = None;
    match version {
        None => writeln!(session.out, "Committed (nothing was written)")?,
        Some(version) => writeln!(session.out, "Committed ({version})")?,
    }
    Ok(())
}

/// `rollback`
pub fn rollback<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    begun(session)?;
    session.transaction = None;
    writeln!(session.out, "Transaction rolled back")?;
    Ok(())
}

/// `reset`
pub fn reset<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let begun = begun(session)?;
    begun.transaction.reset();
    // A reset takes the options with it.
    apply(&begun.transaction, &session.options)?;
    apply(&begun.transaction, &begun.options)?;
    writeln!(session.out, "Transaction reset")?;
    Ok(())
}

/// `waitconnected`, `waitopen`
pub fn wait_open<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    session.read(|transaction| transaction.get_read_version().wait()).map(drop)
}

/// `getversion`
pub fn get_version<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let version = session.read(|transaction| transaction.get_read_version().wait())?;
    writeln!(session.out, "{version}")?;
    Ok(())
}

/// `sleep SECONDS`
pub fn sleep<Out: Write>(session: &mut Session<Out>, seconds: &[u8]) -> Result<(), Refusal> {
    let seconds: f64 = number(seconds, "SECONDS")?;
    if !(0.0..=SLEEP_MAX).contains(&seconds) {
        return Err(Refusal::Usage(format!("SECONDS must lie between 0 and {SLEEP_MAX}")));
    }
    let env = session.database.endpoint().env().clone();
    let rest = async {
        env.sleep(Duration::from_secs_f64(seconds)).await;
        Ok(())
    };
    Ok(session.interrupts.answer(&env, rest)?)
}

fn begun<Out>(session: &Session<Out>) -> Result<&Begun, Refusal> {
    let text = "no transaction has been begun; begin starts one";
    session.transaction.as_ref().ok_or_else(|| Refusal::Usage(text.to_owned()))
}
