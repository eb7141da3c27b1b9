package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/driver"
)

// creating finds the roles that may put functions and operators where lock users' statements look
// for them: into the schema of the tables, an earlier one of the search path, or a new one of that
// name. Lock users, the owner and superusers may do everything anyway.
const creating = `WITH ours AS (SELECT oid, relnamespace, relowner FROM pg_class WHERE oid = to_regclass('hf_lock')),
	path AS (SELECT name::text, n FROM unnest(current_schemas(false)) WITH ORDINALITY AS p(name, n)),
	looked AS (SELECT name FROM path WHERE n <= (SELECT min(n) FROM path JOIN pg_namespace s ON s.nspname = path.name JOIN ours ON ours.relnamespace = s.oid)),
	grantee AS (SELECT r.oid, r.rolname::text AS name FROM pg_roles r, ours WHERE r.rolcanlogin AND NOT r.rolsuper AND has_database_privilege(r.oid, current_database(), 'CONNECT')
		AND NOT pg_has_role(r.oid, ours.relowner, 'MEMBER') AND NOT has_table_privilege(r.oid, ours.oid, 'UPDATE')
		AND NOT pg_has_role(r.oid, (SELECT datdba FROM pg_database WHERE datname = current_database()), 'MEMBER')),
	may AS (SELECT g.name FROM grantee g, looked l WHERE has_schema_privilege(g.oid, l.name, 'CREATE')
		UNION SELECT g.name FROM grantee g WHERE has_database_privilege(g.oid, current_database(), 'CREATE')
		UNION SELECT 'PUBLIC' FROM looked l WHERE has_schema_privilege('public', l.name, 'CREATE')
		UNION SELECT 'PUBLIC' FROM ours WHERE has_database_privilege('public', current_database(), 'CREATE'))
	SELECT 'creators', coalesce((SELECT string_agg(name, ', ' ORDER BY name) FROM may), '')
	UNION ALL SELECT 'schemas', coalesce((SELECT string_agg(name, ', ') FROM looked), '')
	UNION ALL SELECT 'sees all sessions', pg_has_role('pg_read_all_stats', 'USAGE')::text`

// keeping finds the transactions for which the server keeps old versions of this database's rows,
// and their age in milliseconds. Only members of pg_read_all_stats see those of other roles.
const keeping = `SELECT format('process %s of %s (%s)', pid, usename, state), (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint FROM pg_stat_activity
	WHERE datname = current_database() AND backend_type = 'client backend' AND coalesce(backend_xmin, backend_xid) IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
	UNION ALL SELECT format('the prepared transaction %s of %s', gid, owner), (extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint
		FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL SELECT format('the replication slot %s, which nobody uses', slot_name), 0 FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active
	ORDER BY 2 DESC`

// transaction is a transaction that makes the server keep old versions of rows.
type transaction struct {
	what string
	ms   int64
}

// creators checks for roles whose functions lock users' statements may call.
func (x *exam) creators() {
	const code = "postgres.creators"
	switch {
	case x.is["schemas"] == "": // no tables
	case x.is["creators"] != "":
		x.Add(driver.Finding{Code: code, Severity: driver.Endangers,
			Found: fmt.Sprintf(
				"roles that may not write to hf_lock may create functions where our statements look for them (schemas %s): %s",
				x.is["schemas"], x.is["creators"]),
			Why: "our statements then call these functions with the rights of lock users, and so end or forge any lock",
			Do:  "REVOKE CREATE ON SCHEMA, or ON DATABASE, FROM those roles (PUBLIC is everybody), or keep the tables in a database of their own"})
	default:
		x.Fine(code, "only lock users, owners and superusers may create anything where our statements look for it (%s)",
			x.is["schemas"])
	}
}

// oldRows checks for transactions that stay open. Slots have no age, so each unused one counts.
func (x *exam) oldRows(ttl time.Duration) {
	const code = "postgres.old-rows"
	const why = "each request writes a new version of a row, and the server can remove none of the old ones while such a transaction is open: requests become slower and slower"
	var old []string
	for _, o := range x.old {
		age := time.Duration(o.ms) * time.Millisecond
		switch {
		case strings.HasPrefix(o.what, "the replication slot"):
			old = append(old, fmt.Sprintf("%q", o.what))
		case age > ttl:
			old = append(old, fmt.Sprintf("%q, for %v", o.what, age.Round(100*time.Millisecond)))
		}
	}
	switch {
	case len(old) > 0:
		x.Add(driver.Finding{Code: code, Severity: driver.Slows,
			Found: fmt.Sprintf("old versions of rows are kept for %d others: %s", len(old),
				strings.Join(old[:min(len(old), 3)], "; ")),
			Why: why,
			Do:  "end them: pg_terminate_backend(PROCESS), ROLLBACK PREPARED, pg_drop_replication_slot; ALTER ROLE … SET idle_in_transaction_session_timeout = '10s' for roles that leave transactions open"})
	case x.is["sees all sessions"] != "true":
		x.Add(driver.Finding{Code: code, Severity: driver.Unclear,
			Found: "it is unknown whether other roles have long transactions: this role may not see them",
			Why:   why,
			Do:    "examine it as a member of pg_read_all_stats: GRANT pg_read_all_stats TO …. Or ask an administrator for pg_stat_activity"})
	default:
		x.Fine(code,
			"no open or prepared transaction and no slot makes the server keep old versions of rows for longer than %v", ttl)
	}
}
