//! An expression as a tree of JSON, as Prometheus' `parse_query` gives it: its own pages and
//! Grafana's builder of queries draw expressions from that.
//!
//! Times are milliseconds. The form is that of `web/api/v1/translate_ast.go` of Prometheus 3.

use plinth_promql::Matcher;
use plinth_promql::ast::{
    Aggregate, At, Binary, Cardinality, Expr, Matching, Node, Selector, Shift, Subquery,
};
use plinth_promql::functions::{Function, Type};
use serde_json::{Value as Json, json};

/// The tree of an expression.
pub(super) fn tree(node: &Node) -> Json {
    let found = match &node.expr {
        Expr::Number(number) => json!({ "type": "numberLiteral", "val": number_text(*number) }),
        Expr::String(text) => json!({ "type": "stringLiteral", "val": text }),
        Expr::Vector(selector) => selected(selector, None),
        Expr::Matrix(selector, range) => selected(selector, Some(*range)),
        Expr::Subquery(inner) => subquery(inner),
        Expr::Call(function, arguments) => call(function, arguments),
        Expr::Aggregate(inner) => aggregate(inner),
        Expr::Binary(inner) => binary(inner),
        Expr::Negative(inner) => json!({ "type": "unaryExpr", "op": "-", "expr": tree(inner) }),
        Expr::Positive(inner) => json!({ "type": "unaryExpr", "op": "+", "expr": tree(inner) }),
    };
    match node.in_parens {
        true => json!({ "type": "parenExpr", "expr": found }),
        false => found,
    }
}

/// A number without an exponent.
fn number_text(number: f64) -> String {
    match number {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        number => number.to_string(),
    }
}

fn milliseconds(nanoseconds: i64) -> i64 {
    nanoseconds / 1_000_000
}

/// Adds what changes the time of a selector or subquery.
fn shifted(mut found: Json, shift: &Shift) -> Json {
    let (timestamp, start_or_end) = match shift.at {
        Some(At::Time(time)) => (Some(milliseconds(time)), None),
        Some(At::Start) => (None, Some("start")),
        Some(At::End) => (None, Some("end")),
        None => (None, None),
    };
    found["offset"] = milliseconds(shift.offset.unwrap_or(0)).into();
    found["timestamp"] = timestamp.into();
    found["startOrEnd"] = start_or_end.into();
    found
}

fn selected(selector: &Selector, range: Option<i64>) -> Json {
    let matcher = |matcher: &Matcher| json!({ "name": matcher.label, "value": matcher.value, "type": matcher.op.text() });
    let matchers: Vec<Json> = selector.matchers.iter().map(matcher).collect();
    let name = selector.name.as_deref().unwrap_or_default();
    let mut found = json!({ "type": "vectorSelector", "name": name, "matchers": matchers });
    if let Some(range) = range {
        found["type"] = "matrixSelector".into();
        found["range"] = milliseconds(range).into();
    }
    shifted(found, &selector.shift)
}

fn subquery(subquery: &Subquery) -> Json {
    let found = json!({
        "type": "subquery",
        "expr": tree(&subquery.inner),
        "range": milliseconds(subquery.range),
        "step": milliseconds(subquery.step.unwrap_or(0)),
    });
    shifted(found, &subquery.shift)
}

fn call(function: &Function, arguments: &[Node]) -> Json {
    let takes: Vec<&str> = function.takes.iter().copied().map(word).collect();
    let variadic = match function.repeats {
        true => -1,
        false => i64::try_from(function.optional).unwrap_or(0),
    };
    json!({
        "type": "call",
        "func": {
            "name": function.name,
            "argTypes": takes,
            "variadic": variadic,
            "returnType": word(function.returns),
        },
        "args": arguments.iter().map(tree).collect::<Vec<Json>>(),
    })
}

fn word(kind: Type) -> &'static str {
    match kind {
        Type::Scalar => "scalar",
        Type::Vector => "vector",
        Type::Matrix => "matrix",
        Type::String => "string",
    }
}

fn aggregate(aggregate: &Aggregate) -> Json {
    json!({
        "type": "aggregation",
        "op": aggregate.op.name(),
        "expr": tree(&aggregate.inner),
        "param": aggregate.param.as_deref().map(tree),
        "grouping": aggregate.grouping,
        "without": aggregate.without,
    })
}

fn binary(binary: &Binary) -> Json {
    // A scalar meets every series, so there is nothing to say of which ones meet.
    let sides = [&binary.left, &binary.right];
    let is_matched = sides.iter().all(|side| side.value_type() == Type::Vector);
    json!({
        "type": "binaryExpr",
        "op": binary.op.text(),
        "lhs": tree(&binary.left),
        "rhs": tree(&binary.right),
        "matching": is_matched.then(|| matching(&binary.matching)),
        "bool": binary.bool,
    })
}

fn matching(matching: &Matching) -> Json {
    let card = match matching.cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::ManyToOne => "many-to-one",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::ManyToMany => "many-to-many",
    };
    json!({
        "card": card,
        "labels": matching.labels,
        "on": matching.on,
        "include": matching.include,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Json {
        tree(&plinth_promql::parse(text).expect(text))
    }

    #[test]
    fn selectors_say_what_they_select_and_when() {
        let found = of(r#"up{job=~"a|b"}[5m] offset 1m @ 1.5"#);
        let name = json!({ "name": "__name__", "value": "up", "type": "=" });
        let job = json!({ "name": "job", "value": "a|b", "type": "=~" });
        assert_eq!(found["type"], "matrixSelector");
        assert_eq!((&found["name"], &found["range"]), (&json!("up"), &json!(300_000)));
        assert_eq!((&found["offset"], &found["timestamp"]), (&json!(60_000), &json!(1500)));
        assert!(found["startOrEnd"].is_null());
        let matchers = found["matchers"].as_array().unwrap();
        assert!(matchers.contains(&name) && matchers.contains(&job), "{matchers:?}");
        let at_end = of("up @ end()");
        assert_eq!((&at_end["startOrEnd"], &at_end["timestamp"]), (&json!("end"), &Json::Null));
    }

    #[test]
    fn what_is_made_of_others_has_them_as_branches() {
        let found = of("(sum by (job) (rate(up[1m])) > bool 0.5)");
        assert_eq!(found["type"], "parenExpr");
        let comparison = &found["expr"];
        assert_eq!((&comparison["op"], &comparison["bool"]), (&json!(">"), &json!(true)));
        assert!(comparison["matching"].is_null(), "a scalar meets every series");
        assert_eq!(comparison["rhs"], json!({ "type": "numberLiteral", "val": "0.5" }));
        let sum = &comparison["lhs"];
        assert_eq!((&sum["op"], &sum["grouping"]), (&json!("sum"), &json!(["job"])));
        assert!(sum["param"].is_null() && sum["without"] == json!(false));
        let rate = json!({
            "name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector",
        });
        assert_eq!(sum["expr"]["func"], rate);
        let joined = of("a * on (x) group_left (y) b");
        let meets = json!({
            "card": "many-to-one", "labels": ["x"], "on": true, "include": ["y"],
        });
        assert_eq!(joined["matching"], meets);
        assert_eq!(of("round(a)")["func"]["variadic"], 1);
        assert_eq!(of("max_over_time(a[1h:5m])")["args"][0]["step"], 300_000);
        assert_eq!(of("-a")["type"], "unaryExpr");
    }
}
