#!/bin/bash
#
# DevStack plugin: the service beside Nova, on a sample fabric.
#
#   enable_plugin laas <repository>
#
# Every phase can be repeated with the same result. unstack removes the lines that the
# plugin has added to files of other services.
# shellcheck disable=SC2154

_LAAS_XTRACE=$(set +o | grep xtrace)
set +o xtrace

LAAS_BIN_DIR=$(get_python_exec_prefix)

# Nova's defaults, written out because setting an option replaces its default.
LAAS_NOVA_FILTERS=ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter
LAAS_NOVA_FILTERS+=,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter
LAAS_NOVA_AVAILABLE=nova.scheduler.filters.all_filters

LAAS_ADDED_FILTERS="AggregateMultiTenancyIsolation LaasTenantFilter"
LAAS_ADDED_AVAILABLE=nova_filters.laas.LaasTenantFilter

# Rules that the service's role needs beyond the rights of every user.
LAAS_NOVA_RIGHTS="
os_compute_api:os-aggregates:index
os_compute_api:os-aggregates:create
os_compute_api:os-aggregates:delete
os_compute_api:os-aggregates:add_host
os_compute_api:os-aggregates:remove_host
os_compute_api:os-aggregates:set_metadata
os_compute_api:os-hypervisors:list-detail
os_compute_api:servers:detail:get_all_tenants
os_compute_api:servers:allow_all_filters"
LAAS_PLACEMENT_RIGHTS="
placement:resource_providers:list
placement:resource_providers:allocations:list
placement:resource_providers:aggregates:list
placement:resource_providers:aggregates:update
placement:allocations:list
placement:allocation_candidates:list"


# Install
# -------

function install_laas {
    setup_develop "$LAAS_DIR"
    # Checked here because the scheduler ends at start if it cannot import its filters.
    local found="import importlib.util, sys; sys.exit(importlib.util.find_spec('nova_filters') is None)"
    if ! "${NOVA_BIN_DIR:-$LAAS_BIN_DIR}/python3" -c "$found"; then
        die $LINENO "nova_filters is not installed where nova-scheduler runs (USE_VENV is not supported)"
    fi
}


# Files of the service
# --------------------

function configure_laas {
    sudo install -d -o "$STACK_USER" "$LAAS_CONF_DIR" "$LAAS_STATE_DIR"
    rm -f "$LAAS_CONF"

    iniset "$LAAS_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset "$LAAS_CONF" DEFAULT state_dir "$LAAS_STATE_DIR"
    setup_logging "$LAAS_CONF"
    iniset_rpc_backend laas "$LAAS_CONF"
    iniset "$LAAS_CONF" oslo_messaging_notifications driver "$LAAS_NOTIFICATIONS"
    iniset "$LAAS_CONF" database connection "$(database_connection_url laas)"

    iniset "$LAAS_CONF" api auth_strategy keystone
    iniset "$LAAS_CONF" api default_fabric "$LAAS_FABRIC"
    configure_keystone_authtoken_middleware "$LAAS_CONF" "$LAAS_USER"
    iniset "$LAAS_CONF" keystone_authtoken service_token_roles_required True

    local section sections="nova placement"
    if is_service_enabled ir-api; then
        sections+=" ironic"
        # Ironic shows all nodes to the role service of the service project.
        iniset "$IRONIC_CONF_FILE" DEFAULT rbac_service_role_elevated_access True
    fi
    for section in $sections; do
        configure_keystoneauth "$LAAS_CONF" "$LAAS_USER" "$section"
        iniset "$LAAS_CONF" "$section" valid_interfaces public
        iniset "$LAAS_CONF" "$section" region_name "$REGION_NAME"
    done
    iniset "$LAAS_CONF" compute kind nova
    iniset "$LAAS_CONF" compute pool "$LAAS_POOL"
    iniset "$LAAS_CONF" compute sentinel "$LAAS_SENTINEL"
    iniset "$LAAS_CONF" compute one_allocation_per_project False # as LaasTenantFilter is enabled

    iniset "$LAAS_CONF" opensm directory "$LAAS_OPENSM_DIR"
    if is_service_enabled laas-opensm-agent; then
        iniset "$LAAS_CONF" opensm reached_by agent
        configure_laas_agent
    fi

    write_uwsgi_config "$LAAS_UWSGI_CONF" "$LAAS_UWSGI" /laas "" laas-api
    iniset "$LAAS_UWSGI_CONF" uwsgi env "LAAS_CONFIG_DIR=$LAAS_CONF_DIR"
}

# The agent has a file of its own, without the login of the database.
function configure_laas_agent {
    rm -f "$LAAS_AGENT_CONF"
    iniset "$LAAS_AGENT_CONF" DEFAULT debug "$ENABLE_DEBUG_LOG_LEVEL"
    iniset "$LAAS_AGENT_CONF" DEFAULT state_dir "$LAAS_STATE_DIR"
    setup_logging "$LAAS_AGENT_CONF"
    iniset_rpc_backend laas "$LAAS_AGENT_CONF"
    configure_keystoneauth "$LAAS_AGENT_CONF" "$LAAS_AGENT_USER" laas
    iniset "$LAAS_AGENT_CONF" laas valid_interfaces public
    iniset "$LAAS_AGENT_CONF" laas region_name "$REGION_NAME"
    iniset "$LAAS_AGENT_CONF" laas service_type "$LAAS_SERVICE_TYPE"
    iniset "$LAAS_AGENT_CONF" opensm directory "$LAAS_OPENSM_DIR"
    iniset "$LAAS_AGENT_CONF" opensm agent_fabric "$LAAS_FABRIC"
    iniset "$LAAS_AGENT_CONF" opensm pid_file "$LAAS_OPENSM_PID_FILE"
    iniset "$LAAS_AGENT_CONF" opensm log_file "$LAAS_OPENSM_LOG_FILE"
    iniset "$LAAS_AGENT_CONF" opensm cache_directory "$LAAS_OPENSM_CACHE_DIR"
    iniset "$LAAS_AGENT_CONF" opensm dump_command "$LAAS_OPENSM_DUMP_COMMAND"
}


# Files of other services
# -----------------------

# _laas_without "a,b" words: prints the list without the words
function _laas_without {
    local word rest=$1
    shift
    rest=,${rest// /},
    for word in "$@"; do
        rest=${rest//,$word,/,}
    done
    rest=${rest#,}
    echo "${rest%,}"
}

function configure_laas_nova {
    local enabled available
    enabled=$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)
    # shellcheck disable=SC2086
    enabled=$(_laas_without "${enabled:-$LAAS_NOVA_FILTERS}" $LAAS_ADDED_FILTERS)
    iniset "$NOVA_CONF" filter_scheduler enabled_filters "$enabled,${LAAS_ADDED_FILTERS// /,}"

    available=$(iniget_multiline "$NOVA_CONF" filter_scheduler available_filters)
    available=" ${available:-$LAAS_NOVA_AVAILABLE} "
    # shellcheck disable=SC2086
    iniset_multiline "$NOVA_CONF" filter_scheduler available_filters \
        ${available// $LAAS_ADDED_AVAILABLE / } $LAAS_ADDED_AVAILABLE

    local limit
    limit=$(iniget "$NOVA_CONF" scheduler limit_tenants_to_placement_aggregate)
    if [[ ${limit,,} != true ]]; then
        iniset "$NOVA_CONF" scheduler limit_tenants_to_placement_aggregate True
        touch "$LAAS_CONF_DIR/limits-tenants"
    fi
    # A new host takes no server before create_laas_fabric has put it into the pool.
    local enables
    enables=$(iniget "$NOVA_CONF" DEFAULT enable_new_services)
    if [[ ${enables,,} != false ]]; then
        iniset "$NOVA_CONF" DEFAULT enable_new_services False
        touch "$LAAS_CONF_DIR/enables-services"
    fi
    # Every user keeps the right to read the quota of their own project.
    _laas_grant "$NOVA_CONF_DIR/policy.yaml" "role:admin" "$LAAS_NOVA_RIGHTS" \
        "role:admin or rule:project_reader_or_admin" os_compute_api:os-quota-sets:show
    _laas_grant "$PLACEMENT_CONF_DIR/policy.yaml" "role:admin or role:service" "$LAAS_PLACEMENT_RIGHTS"
}

function unconfigure_laas_nova {
    local enabled available
    if [[ -f $NOVA_CONF ]]; then
        enabled=$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)
        # shellcheck disable=SC2086
        enabled=$(_laas_without "$enabled" $LAAS_ADDED_FILTERS)
        iniset "$NOVA_CONF" filter_scheduler enabled_filters "$enabled"
        if [[ -z $enabled || $enabled == "$LAAS_NOVA_FILTERS" ]]; then
            inidelete "$NOVA_CONF" filter_scheduler enabled_filters
        fi

        available=" $(iniget_multiline "$NOVA_CONF" filter_scheduler available_filters) "
        available=${available// $LAAS_ADDED_AVAILABLE / }
        inidelete "$NOVA_CONF" filter_scheduler available_filters
        if [[ ${available// /} != "$LAAS_NOVA_AVAILABLE" && -n ${available// /} ]]; then
            # shellcheck disable=SC2086
            iniset_multiline "$NOVA_CONF" filter_scheduler available_filters $available
        fi

        if [[ -f $LAAS_CONF_DIR/limits-tenants ]]; then
            inidelete "$NOVA_CONF" scheduler limit_tenants_to_placement_aggregate
            rm -f "$LAAS_CONF_DIR/limits-tenants"
        fi
        if [[ -f $LAAS_CONF_DIR/enables-services ]]; then
            inidelete "$NOVA_CONF" DEFAULT enable_new_services
            rm -f "$LAAS_CONF_DIR/enables-services"
        fi
    fi
    _laas_revoke "$NOVA_CONF_DIR/policy.yaml"
    _laas_revoke "$PLACEMENT_CONF_DIR/policy.yaml"
}

# _laas_grant policy-file "present check" "rules" ["present check" "rules"]
function _laas_grant {
    local file=$1 rule
    shift
    _laas_revoke "$file"
    {
        echo "# laas: begin"
        while [[ $# -gt 1 ]]; do
            for rule in $2; do
                echo "\"$rule\": \"$1 or role:$LAAS_ROLE\""
            done
            shift 2
        done
        echo "# laas: end"
    } >>"$file"
}

function _laas_revoke {
    if [[ -f $1 ]]; then
        sed -i '/^# laas: begin$/,/^# laas: end$/ d' "$1"
        [[ -s $1 ]] || rm -f "$1"
    fi
}


# Objects in other services
# -------------------------

function create_laas_accounts {
    create_service_user "$LAAS_USER"
    get_or_create_role "$LAAS_ROLE"
    get_or_add_user_project_role "$LAAS_ROLE" "$LAAS_USER" \
        "$SERVICE_PROJECT_NAME" "$SERVICE_DOMAIN_NAME" "$SERVICE_DOMAIN_NAME"
    if is_service_enabled laas-opensm-agent; then
        create_service_user "$LAAS_AGENT_USER" # its only role is service
    fi
    get_or_create_service laas "$LAAS_SERVICE_TYPE" "Links as a Service"
    get_or_create_endpoint "$LAAS_SERVICE_TYPE" "$REGION_NAME" "$LAAS_URL"
}

function delete_laas_accounts {
    local as="--os-cloud devstack-system-admin"
    # shellcheck disable=SC2086
    {
        openstack $as service delete "$LAAS_SERVICE_TYPE" # deletes its endpoints too
        openstack $as user delete --domain "$SERVICE_DOMAIN_NAME" "$LAAS_USER"
        openstack $as role delete "$LAAS_ROLE"
    } || true
    if is_service_enabled laas-opensm-agent; then
        # shellcheck disable=SC2086
        openstack $as user delete --domain "$SERVICE_DOMAIN_NAME" "$LAAS_AGENT_USER" || true
    fi
}

function _laas_aggregate {
    openstack --os-cloud devstack-admin aggregate "$@"
}

function create_laas_pool {
    _laas_aggregate show "$LAAS_POOL" >/dev/null 2>&1 || _laas_aggregate create "$LAAS_POOL"
    _laas_aggregate set --property filter_tenant_id="$LAAS_SENTINEL" \
        --property laas:pool=true "$LAAS_POOL"
}

# Deletes the pool and every aggregate laas-*, which allocations may have left.
function delete_laas_aggregates {
    local aggregate host
    for aggregate in $(_laas_aggregate list -f value -c Name); do
        [[ $aggregate == "$LAAS_POOL" || $aggregate == laas-* ]] || continue
        for host in $(_laas_aggregate show "$aggregate" -f value -c hosts | tr "[],'\"" " "); do
            _laas_aggregate remove host "$aggregate" "$host" || true
        done
        _laas_aggregate delete "$aggregate" || true
    done
}

# Maps the hosts to their cell, which DevStack itself does only after this phase. Nova adds no
# other host to an aggregate.
function discover_laas_hosts {
    is_nova_ready
    "${NOVA_BIN_DIR:-$LAAS_BIN_DIR}/nova-manage" --config-file "$NOVA_CONF" \
        cell_v2 discover_hosts --by-service
}

# Gives the hosts of a generated fabric the names of Nova's hosts, and excludes the others. Hosts
# of the fabric join the pool; then all hosts are enabled, as those beyond it are ordinary ones.
function create_laas_fabric {
    local dump=$LAAS_STATE_DIR/$LAAS_FABRIC.ibnetdiscover
    "$LAAS_BIN_DIR/laas-manage" fabric generate "$LAAS_XGFT" --output "$dump"

    local found nodes computes=() services=() generated=() leftover=() pooled=() host i
    found=$(openstack --os-cloud devstack-admin compute service list \
        --service nova-compute -f value -c Host | sort -V)
    read -r -d '' -a services <<<"$found" || true
    computes=("${services[@]}")
    if is_service_enabled ir-api; then
        # The hosts are Ironic's nodes; the worker puts them into the pool.
        nodes=$(openstack --os-cloud devstack-system-admin baremetal node list -f value -c Name | sort -V)
        read -r -d '' -a computes <<<"$nodes" || true
    fi
    found=$(grep -o '"[^" ]* mlx5_0"' "$dump" | tr -d '"' | cut -d ' ' -f 1 | sort -Vu)
    read -r -d '' -a generated <<<"$found" || true
    for i in "${!generated[@]}"; do
        if ((i < ${#computes[@]})); then
            sed -i "s/\"${generated[i]} mlx5_0\"/\"${computes[i]} mlx5_0\"/" "$dump"
            is_service_enabled ir-api || pooled+=("${computes[i]}")
        else
            leftover+=(--exclude "${generated[i]}")
        fi
    done
    "$LAAS_BIN_DIR/laas-manage" --config-file "$LAAS_CONF" fabric import "$dump" \
        --id "$LAAS_FABRIC" "${leftover[@]}"

    found=" $(_laas_aggregate show "$LAAS_POOL" -f value -c hosts | tr "[],'\"" " ") "
    for host in "${pooled[@]}"; do
        [[ $found == *" $host "* ]] || _laas_aggregate add host "$LAAS_POOL" "$host"
    done
    for host in "${services[@]}"; do
        openstack --os-cloud devstack-admin compute service set --enable "$host" nova-compute
    done
}


# Run
# ---

function init_laas {
    recreate_database laas
    "$LAAS_BIN_DIR/laas-manage" --config-file "$LAAS_CONF" db upgrade
    create_laas_pool
    discover_laas_hosts
    create_laas_fabric
}

function start_laas {
    run_process laas-api "$(which uwsgi) --procname-prefix laas-api --ini $LAAS_UWSGI_CONF"
    run_process laas-worker "$LAAS_BIN_DIR/laas-worker --config-file $LAAS_CONF"
    if is_service_enabled laas-opensm-agent; then
        run_process laas-opensm-agent \
            "$LAAS_BIN_DIR/laas-opensm-agent --config-file $LAAS_AGENT_CONF"
    fi
    if ! wait_for_service "$SERVICE_TIMEOUT" "$LAAS_URL/healthcheck"; then
        die $LINENO "laas-api did not start"
    fi
}

function stop_laas {
    if is_service_enabled laas-opensm-agent; then
        stop_process laas-opensm-agent
    fi
    stop_process laas-worker
    stop_process laas-api
}

function configure_laas_tests {
    if is_service_enabled tempest; then
        iniset "$TEMPEST_CONFIG" service_available laas True
        iniset "$TEMPEST_CONFIG" compute-feature-enabled scheduler_enabled_filters \
            "$(iniget "$NOVA_CONF" filter_scheduler enabled_filters)"
    fi
}

function cleanup_laas {
    remove_uwsgi_config "$LAAS_UWSGI_CONF" laas-api
    sudo rm -rf "$LAAS_CONF_DIR" "$LAAS_STATE_DIR"
}


if is_service_enabled laas-api; then
    case "$1 ${2:-}" in
        "stack install")
            echo_summary "Installing laas"
            install_laas
            ;;
        "stack post-config")
            echo_summary "Configuring laas, and Nova's scheduler for it"
            configure_laas
            configure_laas_nova
            create_laas_accounts
            ;;
        "stack extra")
            echo_summary "Starting laas"
            init_laas
            start_laas
            ;;
        "stack test-config")
            configure_laas_tests
            ;;
        "unstack ")
            stop_laas
            delete_laas_aggregates
            delete_laas_accounts
            unconfigure_laas_nova
            ;;
        "clean ")
            unconfigure_laas_nova
            cleanup_laas
            ;;
    esac
fi

$_LAAS_XTRACE
